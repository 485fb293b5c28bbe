"""What moves values: shapes, orders, pieces, selections, copies, padding."""

import math
from itertools import accumulate
from typing import Any

import numpy as np

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.jax.framework import Array, integers, jnp, lax

rows = Table()


@rows.native("Flatten", arithmetic="F")
@planned
def flatten(op: Any, x: Array) -> Plan:
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    sides = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return lambda x: jnp.reshape(x, sides)


@rows.native("Squeeze", arithmetic="F", values=(1,))
@planned
def squeeze(op: Any, x: Array, axes: Array | None = None) -> Plan:
    dims = None if axes is None else integers(axes)
    return lambda x, axes=None: jnp.squeeze(x, dims)


@rows.native("Unsqueeze", arithmetic="F", values=(1,))
@planned
def unsqueeze(op: Any, x: Array, axes: Array) -> Plan:
    dims = integers(axes)
    return lambda x, axes: jnp.expand_dims(x, dims)


@rows.native("Reshape", arithmetic="F", values=(1,))
@planned
def reshape(op: Any, x: Array, shape: Array) -> Plan:
    sides = shape_of(op, x, shape)
    return lambda x, shape: jnp.reshape(x, sides)


def shape_of(op: Any, x: Array, shape: Array) -> tuple[int, ...]:
    """What Reshape is asked for, with the sides that are copied."""
    sides = integers(shape)
    if op.allowzero:
        return sides
    return tuple(x.shape[i] if s == 0 else s for i, s in enumerate(sides))


@rows.native("Transpose", arithmetic="F")
def transpose(op: Any, x: Array) -> Array:
    return jnp.transpose(x, op.perm)


@rows.native("Concat", arithmetic="F")
def concat(op: Any, *xs: Array) -> Array:
    return jnp.concatenate(xs, op.axis)


@rows.native("Split", arithmetic="F", values=(1,))
@planned
def split(op: Any, x: Array, sizes: Array | None = None) -> Plan:
    n = x.shape[op.axis]
    if sizes is None:
        ends = [i * -(-n // op.num_outputs) for i in range(1, op.num_outputs)]
    else:
        ends = list(accumulate(integers(sizes)))[:-1]
    return lambda x, sizes=None: tuple(jnp.split(x, ends, op.axis))


@rows.native("Slice", arithmetic="F", values=(1, 2, 3, 4))
@planned
def slices(
    op: Any, x: Array, starts: Array, ends: Array, axes: Any = None, steps: Any = None
) -> Plan:
    first, last = integers(starts), integers(ends)
    which = range(len(first)) if axes is None else integers(axes)
    strides = (1,) * len(first) if steps is None else integers(steps)
    whole = [slice(None)] * x.ndim
    for axis, *bounds in zip(which, first, last, strides, strict=True):
        whole[axis] = slice(*bounds)
    index = tuple(whole)
    return lambda x, *_: x[index]


@rows.native(
    "Gather", arithmetic="S", out_of_range=("nan",),
    source="https://docs.jax.dev/en/latest/_autosummary/jax.numpy.take.html",
)  # fmt: skip
def gather(op: Any, x: Array, indices: Array) -> Array:
    return jnp.take(x, indices, op.axis)


def widths_of(x: Array, pads: Array, axes: Any) -> list[tuple[int, int]]:
    """How far each axis of x is padded at its beginning and its end."""
    amounts, which = integers(pads), range(x.ndim) if axes is None else integers(axes)
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(which):
        widths[axis] = (amounts[i], amounts[len(which) + i])
    return widths


@rows.native("Pad", arithmetic="S", values=(1, 3))
@planned
def pad(op: Any, x: Array, pads: Array, value: Any = None, axes: Any = None) -> Plan:
    widths = widths_of(x, pads, axes)
    negative = any(w < 0 for pair in widths for w in pair)
    if op.mode != "constant":
        if negative:
            raise Unsupported(f"jax.numpy.pad has no negative pads in mode {op.mode!r}")
        return lambda x, *_: jnp.pad(x, widths, op.mode)
    sides = [(low, high, 0) for low, high in widths]

    def call(x: Array, pads: Array, value: Any = None, axes: Any = None) -> Array:
        if negative:
            zero = jnp.zeros((), x.dtype) if value is None else value.reshape(())
            return lax.pad(x, zero, sides)
        return jnp.pad(x, widths, constant_values=0 if value is None else value.reshape(()))

    return call


@rows.native("Expand", arithmetic="S", values=(1,))
@planned
def expand(op: Any, x: Array, shape: Array) -> Plan:
    sides = np.broadcast_shapes(x.shape, integers(shape))
    return lambda x, shape: jnp.broadcast_to(x, sides)


@rows.native("Tile", arithmetic="S", values=(1,))
@planned
def tile(op: Any, x: Array, repeats: Array) -> Plan:
    times = integers(repeats)
    return lambda x, repeats: jnp.tile(x, times)


@rows.native("CenterCropPad", arithmetic="F", values=(1,))
@planned
def center(op: Any, x: Array, shape: Array) -> Plan:
    sizes = dict(zip(op.axes or range(x.ndim), integers(shape), strict=True))
    more = [sizes.get(i, sizes.get(i - x.ndim, n)) - n for i, n in enumerate(x.shape)]
    sides = [(int(n / 2), n - int(n / 2), 0) for n in more]
    return lambda x, shape: lax.pad(x, jnp.zeros((), x.dtype), sides)


@rows.native("Trilu", arithmetic="F", values=(1,))
@planned
def trilu(op: Any, x: Array, k: Array | None = None) -> Plan:
    (diagonal,) = (0,) if k is None else integers(k)
    function = jnp.triu if op.upper else jnp.tril
    return lambda x, k=None: function(x, diagonal)
