"""What takes from places, or puts at places, that a tensor names."""

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, planned

rows = Table()
REDUCED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
"""The names of ONNX's reductions in `torch.scatter_reduce`."""


# its gradient adds up repeated indices in 16 bits
@rows.native("GatherElements", arithmetic="S")
@planned
def gather_elements(op: Any, x: Tensor, indices: Tensor) -> Plan:
    n = x.shape[op.axis]
    return lambda x, indices: torch.gather(x, op.axis, from_the_front(indices, n))


@rows.native("GatherND", arithmetic="S")
@planned
def gather_nd(op: Any, x: Tensor, indices: Tensor) -> Plan:
    """torch's own indices count from either end."""
    own = of_the_batch(op.batch_dims, indices)
    return lambda x, indices: x[(*own, *indices.unbind(-1))]


@rows.native("ScatterElements", arithmetic="S")
@planned
def scatter_elements(op: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Plan:
    require_one_shape(indices, updates)
    n, axis, reduced = x.shape[op.axis], op.axis, REDUCED.get(op.reduction)
    if reduced is None:
        return lambda x, i, updates: torch.scatter(x, axis, from_the_front(i, n), updates)
    return lambda x, i, updates: torch.scatter_reduce(
        x, axis, from_the_front(i, n), updates, reduced
    )


@rows.native("ScatterND", arithmetic="S")
@planned
def scatter_nd(op: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Plan:
    if op.reduction not in ("none", "add"):
        raise Unsupported("torch.index_put replaces or adds")
    adds = op.reduction == "add"
    return lambda x, i, updates: torch.index_put(x, i.unbind(-1), updates, adds)


def from_the_front(indices: Tensor, n: int) -> Tensor:
    """Indices along an axis of n, which torch does not count from the end here."""
    return torch.where(indices < 0, indices + n, indices)


def of_the_batch(axes: int, indices: Tensor) -> tuple[Tensor, ...]:
    """The places of rows of indices along the leading axes."""
    rank = indices.ndim - 1
    return tuple(
        torch.arange(n, device=indices.device).view([-1 if a == i else 1 for a in range(rank)])
        for i, n in enumerate(indices.shape[:axes])
    )


def require_one_shape(indices: Tensor, updates: Tensor) -> None:
    """`torch.scatter` leaves what its source has beyond the indices, where ONNX refuses it."""
    if updates.shape != indices.shape:
        raise ValueError(f"indices {tuple(indices.shape)} and updates {tuple(updates.shape)}")
