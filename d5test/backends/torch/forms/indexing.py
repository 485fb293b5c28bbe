"""Forms of what takes from places, or puts at them."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Forms, Plan, planned
from d5test.backends.torch.arguments import integers
from d5test.backends.torch.forms.calls import into, with_buffers
from d5test.backends.torch.indexing import (
    NO_GRADIENT,
    REDUCED,
    from_the_front,
    index_of,
    require_one_shape,
)

forms = Forms()


def along(function: Plan, op: Any, x: Tensor, indices: Tensor, *updates: Tensor) -> Plan:
    """By `function(x, axis, indices, ...)`, whose indices count from the front."""
    for given in updates:
        require_one_shape(indices, given)
    n, axis = x.shape[op.axis], op.axis
    return lambda x, indices, *updates: function(x, axis, from_the_front(indices, n), *updates)


def written(op: Any, x: Tensor, indices: Tensor, strided: bool) -> Tensor:
    places = from_the_front(indices, x.shape[op.axis])
    return into(lambda out: torch.gather(x, op.axis, places, out=out), indices.shape, x, strided)


forms.add("GatherElements", "Tensor.gather", arithmetic="S")(
    planned(partial(along, Tensor.gather))
)
with_buffers(forms, "GatherElements", "torch.gather", written)


@forms.add("GatherElements", "torch.take_along_dim", arithmetic="S")
@planned
def take_along_dim(op: Any, x: Tensor, indices: Tensor) -> Plan:
    """It broadcasts, so that x has to be as short as the indices."""
    n, axis = x.shape[op.axis], op.axis % x.ndim
    part = tuple(slice(None if i == axis else m) for i, m in enumerate(indices.shape))
    return lambda x, i: torch.take_along_dim(x[part], from_the_front(i, n), axis)


for _reduction, _title, _function in (
    ("none", "Tensor.scatter", Tensor.scatter),
    ("none", "Tensor.scatter_", lambda x, *given: x.clone().scatter_(*given)),
    ("add", "torch.scatter_add", torch.scatter_add),
    ("add", "Tensor.scatter_add_", lambda x, *given: x.clone().scatter_add_(*given)),
):
    forms.add("ScatterElements", _title, arithmetic="S", attributes={"reduction": (_reduction,)})(
        planned(partial(along, _function))
    )


@forms.add(
    "ScatterElements", "Tensor.scatter_reduce_", arithmetic="S",
    attributes={"reduction": ("add", "mul", "max", "min")},
)  # fmt: skip
@planned
def scatter_reduce(op: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Plan:
    reduced = REDUCED[op.reduction]
    return along(
        lambda x, *given: x.clone().scatter_reduce_(*given, reduced), op, x, indices, updates
    )


@forms.add(
    "ScatterND", "Tensor.index_put_", arithmetic="S", attributes={"reduction": ("none", "add")}
)
@planned
def index_put(op: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Plan:
    adds = op.reduction == "add"
    return lambda x, i, updates: x.clone().index_put_(i.unbind(-1), updates, adds)


def top(function: Plan, op: Any, x: Tensor, k: Tensor) -> Plan:
    """By `function(x, k, axis, largest)`."""
    (n,) = integers(k)
    return lambda x, k: function(x, n, op.axis, bool(op.largest))


def by_sorting(x: Tensor, k: int, axis: int, largest: bool) -> Any:
    return tuple(y.narrow(axis, 0, k) for y in torch.sort(x, axis, largest))


for _title, _function in (("Tensor.topk", Tensor.topk), ("torch.sort", by_sorting)):
    forms.add("TopK", _title, values=(1,))(planned(partial(top, _function)))


for _operator, _title, _function in (
    ("ArgMax", "Tensor.argmax", Tensor.argmax),
    ("ArgMax", "torch.max(x, dim)", lambda *given: torch.max(*given)[1]),
    ("ArgMin", "Tensor.argmin", Tensor.argmin),
    ("ArgMin", "torch.min(x, dim)", lambda *given: torch.min(*given)[1]),
):
    forms.add(_operator, _title, gradient=NO_GRADIENT)(partial(index_of, _function))


@forms.add("Compress", "torch.masked_select", attributes={"axis": (None,)})
def masked(op: Any, x: Tensor, condition: Tensor) -> Tensor:
    return torch.masked_select(x.flatten()[: len(condition)], condition)
