"""What moves values: shapes, orders, pieces, selections, copies, padding."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, padded, planned
from d5test.backends.torch.arguments import Ints, integers, outwards

rows = Table()


@rows.native("Flatten")
@planned
def flatten(op: Any, x: Tensor) -> Plan:
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    sides = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return lambda x: torch.reshape(x, sides)


@rows.native("Squeeze", values=(1,))
@planned
def squeeze(op: Any, x: Tensor, axes: Tensor | None = None) -> Plan:
    """`torch.squeeze` leaves an axis that is not of size 1, where ONNX refuses it."""
    if axes is None:
        return lambda x, axes=None: torch.squeeze(x)
    dims = integers(axes)
    if any(x.shape[dim] != 1 for dim in dims):
        raise ValueError(f"axes {dims} of {tuple(x.shape)} are not all of size 1")
    return lambda x, axes: torch.squeeze(x, dims)


@rows.native("Unsqueeze", values=(1,))
@planned
def unsqueeze(op: Any, x: Tensor, axes: Tensor) -> Plan:
    """One function for one axis; `torch.reshape` for more."""
    dims = integers(axes)
    rank = x.ndim + len(dims)
    if len(dims) == 1:
        return lambda x, axes: torch.unsqueeze(x, dims[0])
    new, rest = {dim % rank for dim in dims}, iter(x.shape)
    sides = tuple(1 if axis in new else next(rest) for axis in range(rank))
    return lambda x, axes: torch.reshape(x, sides)


@rows.native("Reshape", values=(1,))
@planned
def reshape(op: Any, x: Tensor, shape: Tensor) -> Plan:
    sides = shape_of(op, x, shape)
    return lambda x, shape: torch.reshape(x, sides)


def shape_of(op: Any, x: Tensor, shape: Tensor) -> Ints:
    """The new shape: a zero in it keeps the input's side, unless it may be one."""
    sides = integers(shape)
    if op.allowzero:
        return sides
    return tuple(side or x.shape[i] for i, side in enumerate(sides))


@rows.native("Transpose")
@planned
def transpose(op: Any, x: Tensor) -> Plan:
    axes = order(op, x)
    return lambda x: torch.permute(x, axes)


def order(op: Any, x: Tensor) -> Ints:
    """The order of the axes: by default the reverse."""
    return tuple(op.perm or range(x.ndim)[::-1])


@rows.native("Concat")
def concat(op: Any, *tensors: Tensor) -> Tensor:
    return torch.cat(tensors, op.axis)


@rows.native("Split", values=(1,))
@planned
def split(op: Any, x: Tensor, sizes: Tensor | None = None) -> Plan:
    if sizes is not None:
        sides = list(integers(sizes))
    else:
        side, n = x.shape[op.axis], op.num_outputs
        chunk = -(-side // n)
        sides = [max(0, min(chunk, side - i * chunk)) for i in range(n)]
    return lambda x, sizes=None: torch.split(x, sides, op.axis)


@rows.native("Slice", values=(1, 2, 3, 4))
@planned
def slices(op: Any, x: Tensor, starts: Tensor, ends: Tensor, *optional: Tensor | None) -> Plan:
    """Composed (flipped) if a step is negative, which torch's slices do not know."""
    axes, steps = padded(optional, 2)
    first, last = integers(starts), integers(ends)
    dims = tuple(range(len(first))) if axes is None else integers(axes)
    strides = (1,) * len(first) if steps is None else integers(steps)
    whole, flipped = [slice(None)] * x.ndim, []
    for start, end, axis, step in zip(first, last, dims, strides, strict=True):
        side, back = x.shape[axis], int(step < 0)
        start, end = (i + side if i < 0 else i for i in (start, end))
        taken = range(min(max(start, 0), side - back), min(max(end, -back), side - back), step)
        if back:
            taken = taken[::-1]
            flipped.append(axis)
        whole[axis] = slice(taken.start, taken.stop, taken.step) if taken else slice(0, 0)
    index = tuple(whole)
    if flipped:
        return lambda x, *_: torch.flip(x[index], flipped)
    return lambda x, *_: x[index]


# its gradient adds up repeated indices in 16 bits
@rows.native("Gather", arithmetic="S")
@planned
def gather(op: Any, x: Tensor, indices: Tensor) -> Plan:
    before = (slice(None),) * (op.axis % x.ndim)
    if indices.dtype == torch.int64:
        return lambda x, indices: x[(*before, indices)]
    return lambda x, indices: x[(*before, indices.long())]


@rows.native("Expand", values=(1,))
@planned
def expand(op: Any, x: Tensor, shape: Tensor) -> Plan:
    """To the shape that both broadcast to: a side of 1 leaves the input's own."""
    sides = torch.broadcast_shapes(x.shape, integers(shape))
    return lambda x, shape: torch.broadcast_to(x, sides)


@rows.native("Tile", values=(1,))
@planned
def tile(op: Any, x: Tensor, repeats: Tensor) -> Plan:
    times = integers(repeats)
    return lambda x, repeats: torch.tile(x, times)


MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
FOLDS: dict[str, Callable[[int, int], int]] = {
    "reflect": lambda i, n: min(i % max(1, 2 * n - 2), -i % max(1, 2 * n - 2)),
    "edge": lambda i, n: min(max(i, 0), n - 1),
    "wrap": lambda i, n: i % n,
}
"""Which element of n stands at place i of a padded axis."""


# the gradient of edge and wrap adds up repeated indices in 16 bits
@rows.native("Pad", arithmetic="S", values=(1, 3))
@planned
def pad(
    op: Any, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None
) -> Plan:
    """Composed if there is a value (`F.pad` takes no tensor), and of indices where `F.pad` has
    no such mode: for leading axes, negative pads, more than one reflection or turn."""
    begin, end = pads_of(x, pads, axes)
    if op.mode == "constant":
        return by_constant(outwards(begin, end), value)
    spatial, mode = around_pixels(x, begin, end), MODES[op.mode]
    if spatial is not None:
        return lambda x, *_: F.pad(x, spatial, mode=mode)
    fold, taken = FOLDS[op.mode], {}
    for axis, (n, b, e) in enumerate(zip(x.shape, begin, end, strict=True)):
        if b or e:
            places = [fold(i, n) for i in range(-b, n + e)]
            taken[axis] = torch.tensor(places, device=x.device)
    return lambda x, *_: selected(x, taken)


def around_pixels(x: Tensor, begin: list[int], end: list[int]) -> list[int] | None:
    """The pads of the pixels of images, as torch takes them; `None` where it does not."""
    least = min([*begin[2:], *end[2:], 0])
    most = max(max(b, e) - i for b, e, i in zip(begin, end, x.shape, strict=True))
    if not any(begin[:2] + end[:2]) and 3 <= x.ndim <= 5 and least >= 0 > most and x.numel():
        return outwards(begin[2:], end[2:])
    return None


def pads_of(x: Tensor, pads: Tensor, axes: Tensor | None) -> tuple[list[int], list[int]]:
    """The pads before and behind each axis."""
    sides, dims = integers(pads), range(x.ndim) if axes is None else integers(axes)
    begin, end = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(dims):
        begin[axis], end[axis] = sides[i], sides[i + len(dims)]
    return begin, end


def by_constant(sides: list[int], value: Tensor | None) -> Plan:
    if value is None:
        return lambda x, *_: F.pad(x, sides)

    def call(x: Tensor, pads: Tensor, value: Tensor, axes: Tensor | None = None) -> Tensor:
        inside = F.pad(torch.ones_like(x, dtype=torch.bool), sides)
        return torch.where(inside, F.pad(x, sides), value)

    return call


def selected(x: Tensor, taken: dict[int, Tensor]) -> Tensor:
    """The elements at these places, axis by axis."""
    for axis, places in taken.items():
        x = torch.index_select(x, axis, places)
    return x


@rows.native("CenterCropPad", values=(1,))
@planned
def center(op: Any, x: Tensor, shape: Tensor) -> Plan:
    sizes = dict(zip(op.axes or range(x.ndim), integers(shape), strict=True))
    more = [sizes.get(i, sizes.get(i - x.ndim, n)) - n for i, n in enumerate(x.shape)]
    begin = [int(n / 2) for n in more]
    sides = outwards(begin, [n - b for n, b in zip(more, begin, strict=True)])
    return lambda x, shape: F.pad(x, sides)


def shuffled(function: Plan, op: Any, x: Tensor) -> Plan:
    if op.mode != "CRD":
        raise Unsupported("torch counts the place in a block behind the channel: CRD")
    return lambda x: function(x, op.blocksize)


for _operator, _function in (
    ("DepthToSpace", F.pixel_shuffle), ("SpaceToDepth", F.pixel_unshuffle),
):  # fmt: skip
    rows.native(_operator)(planned(partial(shuffled, _function)))


def triangle(functions: tuple[Plan, Plan], op: Any, x: Tensor, k: Tensor | None = None) -> Plan:
    """By the function of the lower or of the upper triangle."""
    function = functions[op.upper]
    if k is None:
        return lambda x, k=None: function(x)
    (diagonal,) = integers(k)
    return lambda x, k: function(x, diagonal)


rows.native("Trilu", values=(1,))(planned(partial(triangle, (torch.tril, torch.triu))))
