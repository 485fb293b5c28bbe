"""What takes from places, or puts at places, that a tensor names."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.torch.arguments import integers

rows = Table()
NO_GRADIENT = "ONNX has none, of what jumps"
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


@rows.native("TopK", values=(1,))
@planned
def top_k(op: Any, x: Tensor, k: Tensor) -> Plan:
    (n,) = integers(k)
    return lambda x, k: torch.topk(x, n, op.axis, bool(op.largest), bool(op.sorted))


def index_of(function: Plan, op: Any, x: Tensor) -> Tensor:
    if op.select_last_index:
        raise Unsupported("torch returns the first of equal extrema")
    result: Tensor = function(x, op.axis, bool(op.keepdims))
    return result


for _operator, _function in (("ArgMax", torch.argmax), ("ArgMin", torch.argmin)):
    rows.native(_operator, gradient=NO_GRADIENT)(partial(index_of, _function))


@rows.composed("Hardmax", gradient=NO_GRADIENT)
def hardmax(op: Any, x: Tensor) -> Tensor:
    hot = F.one_hot(torch.argmax(x, op.axis), x.shape[op.axis])
    return hot.movedim(-1, op.axis).to(x.dtype)


@rows.native("Compress")
def compress(op: Any, x: Tensor, condition: Tensor) -> Tensor:
    """By a mask as an index, as long as the axis."""
    x, axis = (x.flatten(), 0) if op.axis is None else (x, op.axis % x.ndim)
    return x.narrow(axis, 0, len(condition))[(*(slice(None),) * axis, condition)]


@rows.composed("OneHot", gradient=NO_GRADIENT, values=(1,))
@planned
def one_hot(op: Any, indices: Tensor, depth: Tensor, values: Tensor) -> Plan:
    """`F.one_hot` refuses an index out of range, of which ONNX has no 1."""
    (n,) = integers(depth)

    def call(indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
        places = from_the_front(indices, n)
        inside = (places >= 0) & (places < n)
        hot = F.one_hot(places.clamp(0, n - 1), n).bool() & inside[..., None]
        return torch.where(hot.movedim(-1, op.axis), values[1], values[0])

    return call


@rows.composed("TensorScatter")
@planned
def tensor_scatter(op: Any, cache: Tensor, update: Tensor, first: Tensor | None = None) -> Plan:
    """By the index of each element along the axis."""
    steps, along, samples = cache.shape[op.axis], [1] * cache.ndim, [-1] + [1] * (cache.ndim - 1)
    along[op.axis] = -1
    own = torch.arange(update.shape[op.axis], device=cache.device).reshape(along)

    def call(cache: Tensor, update: Tensor, first: Tensor | None = None) -> Tensor:
        places = own if first is None else own + first.reshape(samples)
        places = places % steps if op.mode == "circular" else places
        return torch.scatter(cache, op.axis, places.expand(update.shape), update)

    return call
