"""What moves values: shapes, orders, pieces, selections, copies, padding."""

import math
from functools import partial
from typing import Any

import numpy as np

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import channels_last, channels_second, numbers, tf

rows = Table()


@rows.native("Flatten", arithmetic="F")
@planned
def flatten(op: Any, x: Any) -> Plan:
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    sides = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return lambda x: tf.reshape(x, sides)


@rows.native("Squeeze", arithmetic="F", values=(1,))
@planned
def squeeze(op: Any, x: Any, axes: Any = None) -> Plan:
    dims = None if axes is None else list(numbers(axes))
    return lambda x, axes=None: tf.squeeze(x, dims)


@rows.native("Unsqueeze", arithmetic="F", values=(1,))
@planned
def unsqueeze(op: Any, x: Any, axes: Any) -> Plan:
    """One function for one axis; `tf.reshape` for more."""
    dims = numbers(axes)
    rank = x.ndim + len(dims)
    if len(dims) == 1:
        return lambda x, axes: tf.expand_dims(x, dims[0])
    new, rest = {dim % rank for dim in dims}, iter(x.shape)
    sides = [1 if axis in new else next(rest) for axis in range(rank)]
    return lambda x, axes: tf.reshape(x, sides)


@rows.native("Reshape", arithmetic="F", values=(1,))
@planned
def reshape(op: Any, data: Any, shape: Any) -> Plan:
    wanted = shape_of(op, data, shape)
    return lambda data, shape: tf.reshape(data, wanted)


def shape_of(op: Any, data: Any, shape: Any) -> list[int]:
    """What Reshape is asked for, with the sides that are copied."""
    wanted = numbers(shape)
    if op.allowzero:
        return wanted
    return [data.shape[i] if n == 0 else n for i, n in enumerate(wanted)]


@rows.native("Transpose", arithmetic="F")
def transpose(op: Any, data: Any) -> Any:
    return tf.transpose(data, op.perm)


@rows.native("Concat", arithmetic="F")
def concat(op: Any, *inputs: Any) -> Any:
    return tf.concat(inputs, op.axis)


@rows.native("Split", arithmetic="F", values=(1,))
@planned
def split(op: Any, x: Any, sizes: Any = None) -> Plan:
    if sizes is not None:
        sides = numbers(sizes)
    else:
        side, n = x.shape[op.axis], op.num_outputs
        chunk = -(-side // n)
        sides = [min(chunk, max(side - i * chunk, 0)) for i in range(n)]
    return lambda x, sizes=None: tuple(tf.split(x, sides, op.axis))


@rows.native("Slice", arithmetic="F", values=(1, 2, 3, 4))
@planned
def slices(op: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Plan:
    begin, end, stride = part(x, starts, ends, axes, steps)
    open_end = sum((e < 0) << i for i, e in enumerate(end))  # -1 would count from the end
    if any(b < 0 for b in begin):  # a negative step over an empty axis
        shape = [len(range(*s)) for s in zip(begin, end, stride, strict=True)]
        return lambda x, *_: tf.zeros(shape, x.dtype)
    return lambda x, *_: tf.strided_slice(x, begin, end, stride, end_mask=open_end)


def part(x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> tuple[list[int], ...]:
    """Where each axis begins, ends, and by which steps."""
    starts, ends = numbers(starts), numbers(ends)
    steps = [1] * len(starts) if steps is None else numbers(steps)
    begin, end, stride = [0] * x.ndim, list(x.shape), [1] * x.ndim
    axes = range(len(starts)) if axes is None else numbers(axes)
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        i = axis % x.ndim
        begin[i], end[i], stride[i] = slice(*bounds).indices(x.shape[i])
    return begin, end, stride


# an error on the CPU, 0 on a GPU
@rows.native(
    "Gather", arithmetic="S", out_of_range=("raises", "zero"),
    source="https://www.tensorflow.org/api_docs/python/tf/gather",
)  # fmt: skip
@planned
def gather(op: Any, data: Any, indices: Any) -> Plan:
    n, axis = data.shape[op.axis], op.axis

    def call(data: Any, indices: Any) -> Any:
        return tf.gather(data, tf.where(indices < 0, indices + n, indices), axis=axis)

    return call


@rows.native("Pad", arithmetic="S", values=(1, 3))
@planned
def pad(op: Any, data: Any, pads: Any, value: Any = None, axes: Any = None) -> Plan:
    if op.mode not in ("constant", "reflect"):
        raise Unsupported(f"tf.pad has no mode {op.mode}")
    sides = widths(data, pads, axes)
    if op.mode == "reflect":
        if min(map(min, sides), default=0) < 0:
            raise Unsupported("tf.pad takes nothing away")
        return lambda data, *_: tf.pad(data, sides, "REFLECT")
    return around(data, sides)


def around(data: Any, sides: list[tuple[int, int]]) -> Plan:
    """Constants around what is left of the data."""
    kept = tuple(
        slice(max(-b, 0), n + min(e, 0)) for (b, e), n in zip(sides, data.shape, strict=True)
    )
    more = [(max(b, 0), max(e, 0)) for b, e in sides]
    fewer = more != sides

    def call(data: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
        data = data[kept] if fewer else data
        return tf.pad(data, more, constant_values=0 if value is None else tf.reshape(value, ()))

    return call


def widths(data: Any, pads: Any, axes: Any) -> list[tuple[int, int]]:
    """What is added before and behind each axis; below zero, taken away."""
    both = numbers(pads)
    half = len(both) // 2
    sides = [(0, 0)] * data.ndim
    chosen = range(data.ndim) if axes is None else numbers(axes)
    for axis, begin, end in zip(chosen, both[:half], both[half:], strict=True):
        sides[axis % data.ndim] = (begin, end)
    return sides


@rows.native("Expand", arithmetic="S", values=(1,))
@planned
def expand(op: Any, x: Any, shape: Any) -> Plan:
    sides = sides_of(x, shape)
    return lambda x, shape: tf.broadcast_to(x, sides)


def sides_of(x: Any, shape: Any) -> tuple[int, ...]:
    """The shape that x broadcasts to."""
    return np.broadcast_shapes(tuple(x.shape), tuple(numbers(shape)))


# its gradient adds up the copies in 16 bits
@rows.native("Tile", arithmetic="S", values=(1,))
@planned
def tile(op: Any, x: Any, repeats: Any) -> Plan:
    times = numbers(repeats)
    return lambda x, repeats: tf.tile(x, times)


@rows.composed("CenterCropPad", arithmetic="F", values=(1,))
@planned
def center(op: Any, x: Any, shape: Any) -> Plan:
    sizes = dict(zip(op.axes or range(x.ndim), numbers(shape), strict=True))
    more = [sizes.get(i, sizes.get(i - x.ndim, n)) - n for i, n in enumerate(x.shape)]
    return around(x, [(int(n / 2), n - int(n / 2)) for n in more])


def by_blocks(function: Plan, op: Any, x: Any) -> Plan:
    """TensorFlow has channels last, on the CPU."""
    if op.mode != "DCR":
        raise Unsupported("TensorFlow counts the channel behind the place in a block: DCR")
    if op.blocksize == 1:
        raise Unsupported("TensorFlow has blocks of two pixels or more")
    last, second = channels_last(4), channels_second(4)
    return lambda x: tf.transpose(function(tf.transpose(x, last), op.blocksize), second)


for _operator, _function in (
    ("DepthToSpace", tf.nn.depth_to_space), ("SpaceToDepth", tf.nn.space_to_depth),
):  # fmt: skip
    rows.native(_operator, arithmetic="F")(planned(partial(by_blocks, _function)))


@rows.native("Trilu", arithmetic="F", values=(1,))
@planned
def trilu(op: Any, x: Any, k: Any = None) -> Plan:
    (diagonal,) = [0] if k is None else numbers(k)
    if diagonal * (1 if op.upper else -1) > 0:
        raise Unsupported("tf.linalg.band_part has the main diagonal")
    rows, columns = x.shape[-2:]
    lower, upper = (min(-diagonal, rows), -1) if op.upper else (-1, min(diagonal, columns))
    return lambda x, k=None: tf.linalg.band_part(x, lower, upper)


@rows.native("ReverseSequence", arithmetic="F")
def reverse_sequence(op: Any, x: Any, sequence_lens: Any) -> Any:
    return tf.reverse_sequence(x, sequence_lens, op.time_axis, op.batch_axis)
