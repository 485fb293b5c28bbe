"""What gives a tensor another shape."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Plan, Table, planned
from d5test.backends.torch.arguments import integers

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
