"""Forms of what moves values."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Forms, Plan, Unsupported, planned
from d5test.backends.torch.arguments import integers, outwards
from d5test.backends.torch.movement import order, pads_of, shape_of

forms = Forms()
NUMBER = 7.0
"""What `F.pad` writes around."""


def with_number(
    crops: bool,
    op: Any,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Plan:
    """`F.pad` with a number; whether it also crops, takes another way through torch."""
    sides = outwards(*pads_of(x, pads, axes))
    if crops != (min(sides, default=0) < 0):
        raise Unsupported(f"this form {'crops' if crops else 'does not crop'}")
    return lambda x, *_: F.pad(x, sides, value=NUMBER)


for _crops, _title in ((False, f"value={NUMBER}"), (True, f"negative, value={NUMBER}")):
    forms.add(
        "Pad",
        f"torch.nn.functional.pad({_title})",
        values=(1, 3),
        constants={2: NUMBER},
        attributes={"mode": ("constant",)},
        where={"present2": True},
    )(planned(partial(with_number, _crops)))


def reshaped(function: Plan, op: Any, x: Tensor, shape: Tensor) -> Plan:
    sides = shape_of(op, x, shape)
    return lambda x, shape: function(x, sides)


for _name in ("reshape", "view"):
    _method = getattr(Tensor, _name)
    forms.add("Reshape", f"Tensor.{_name}", values=(1,))(planned(partial(reshaped, _method)))


def permuted(function: Plan, op: Any, x: Tensor) -> Plan:
    axes = order(op, x)
    return lambda x: function(x, axes)


forms.add("Transpose", "Tensor.permute")(planned(partial(permuted, Tensor.permute)))


@forms.add("Transpose", "torch.transpose")
@planned
def transpose(op: Any, x: Tensor) -> Plan:
    axes = order(op, x)
    moved = [i for i, axis in enumerate(axes) if axis != i]
    if len(moved) != 2:
        raise Unsupported("torch.transpose exchanges two axes")
    return lambda x: torch.transpose(x, *moved)


@forms.add("Transpose", "Tensor.t, mT")
@planned
def matrix(op: Any, x: Tensor) -> Plan:
    axes = order(op, x)
    if x.ndim < 2 or axes != (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2):
        raise Unsupported("it exchanges the last two axes")
    return Tensor.t if x.ndim == 2 else lambda x: x.mT


forms.add("Concat", "torch.concatenate")(lambda op, *xs: torch.concatenate(xs, op.axis))


@forms.add("Concat", "torch.cat(out=)", gradient="torch differentiates nothing that writes so")
@planned
def concat(op: Any, *tensors: Tensor) -> Plan:
    shape = list(tensors[0].shape)
    shape[op.axis] = sum(x.shape[op.axis] for x in tensors)
    return lambda *xs: torch.cat(xs, op.axis, out=xs[0].new_full(shape, torch.nan))


@forms.add("Split", "torch.chunk, tensor_split", values=(1,))
@planned
def split(op: Any, x: Tensor, sizes: Tensor | None = None) -> Plan:
    """By places, or by a number of parts, which `torch.chunk` makes as large as ONNX does."""
    if sizes is not None:
        places = torch.tensor(integers(sizes)).cumsum(0)[:-1].tolist()
        return lambda x, sizes: torch.tensor_split(x, places, op.axis)
    if (
        x.shape[op.axis] < op.num_outputs
        or -(-x.shape[op.axis] // op.num_outputs) * (op.num_outputs - 1) >= x.shape[op.axis]
    ):
        raise Unsupported("torch.chunk makes fewer parts")
    return lambda x, sizes=None: torch.chunk(x, op.num_outputs, op.axis)


@forms.add("Gather", "torch.index_select", arithmetic="S", where={"rank1": 1})
@planned
def gather(op: Any, x: Tensor, indices: Tensor) -> Plan:
    """Its indices count from the front alone."""
    side = x.shape[op.axis]
    return lambda x, indices: torch.index_select(x, op.axis, indices.long() % side)


@forms.add("Expand", "Tensor.expand", values=(1,))
@planned
def expand(op: Any, x: Tensor, shape: Tensor) -> Plan:
    sides = torch.broadcast_shapes(x.shape, integers(shape))
    return lambda x, shape: x.expand(sides)


@forms.add("Tile", "Tensor.repeat", values=(1,))
@planned
def tile(op: Any, x: Tensor, repeats: Tensor) -> Plan:
    times = integers(repeats)
    return lambda x, repeats: x.repeat(times)


forms.add("Flatten", "torch.flatten", attributes={"axis": (1,)}, where={"rank0": {"min": 2}})(
    planned(lambda op, x: lambda x: torch.flatten(x, 1))
)
