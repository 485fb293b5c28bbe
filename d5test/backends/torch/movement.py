"""What moves values: shapes, orders, pieces, selections, copies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Plan, Table, planned
from d5test.backends.torch.arguments import integers

rows = Table()


@rows.native("Reshape", values=(1,))
@planned
def reshape(op: Any, x: Tensor, shape: Tensor) -> Plan:
    sides = integers(shape)
    if not op.allowzero:
        sides = tuple(side or x.shape[i] for i, side in enumerate(sides))
    return lambda x, shape: torch.reshape(x, sides)


@rows.native("Transpose")
@planned
def transpose(op: Any, x: Tensor) -> Plan:
    perm = op.perm or tuple(range(x.ndim))[::-1]
    return lambda x: torch.permute(x, perm)


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
def slices(
    op: Any,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Plan:
    """Composed (flipped) if a step is negative, which torch's slices do not know."""
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
    sides = list(integers(shape))
    for i in range(1, 1 + min(len(sides), x.ndim)):
        sides[-i] = x.shape[-i] if sides[-i] == 1 else sides[-i]
    whole = (*x.shape[: max(0, x.ndim - len(sides))], *sides)
    return lambda x, shape: torch.broadcast_to(x, whole)


@rows.native("Tile", values=(1,))
@planned
def tile(op: Any, x: Tensor, repeats: Tensor) -> Plan:
    times = integers(repeats)
    return lambda x, repeats: torch.tile(x, times)
