"""Forms of what goes along axes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d5test.backends.base import Forms, Plan, Unsupported, planned
from d5test.backends.torch.arguments import constant, integers
from d5test.backends.torch.forms.calls import into, with_buffers
from d5test.backends.torch.reductions import PAGE, reduction

forms = Forms()


def whole(function: Plan, op: Any, x: Tensor, axes: Tensor | None = None) -> Plan:
    """`function` reduces all axes, and has no other arguments."""
    chosen = () if axes is None else integers(axes)
    if len({axis % x.ndim for axis in chosen}) not in (0, x.ndim):
        raise Unsupported("it reduces all axes")
    return lambda x, axes=None: function(x)


def along_one(function: Plan, op: Any, x: Tensor, axes: Tensor) -> Plan:
    """`function(x, dim, keepdim)` reduces one axis."""
    chosen = integers(axes)
    (dim,), keepdim = chosen, bool(op.keepdims)
    return lambda x, axes: function(x, dim, keepdim)


WHOLE = {"keepdims": (0,), "noop_with_empty_axes": (0,)}
ONE = {"size1": 1}
NOT_EMPTY = {"noop_with_empty_axes": (0,)}
"""Where no axes mean all of them."""
EVEN: Mapping[str, Mapping[str, Any]] = {
    name: {"contract": "even shares", "source": PAGE.format(page)}
    for name, page in (("amax", "amax"), ("amin", "amin"), ("max", "amax"), ("min", "amin"))
}
"""What is documented of equal elements, by the names of functions."""
for _operator, _name in (
    ("ReduceSum", "sum"), ("ReduceMean", "mean"), ("ReduceMax", "amax"), ("ReduceMin", "amin"),
    ("ReduceLogSumExp", "logsumexp"),
):  # fmt: skip
    _method = getattr(Tensor, _name)
    _contract = EVEN.get(_name, {})
    forms.add(_operator, f"Tensor.{_name}", values=(1,), **_contract)(
        planned(partial(reduction, _method))
    )
    forms.add(_operator, f"torch.{_name}(dim=int)", values=(1,), where=ONE, **_contract)(
        planned(partial(along_one, getattr(torch, _name)))
    )
for _operator, _name in (
    ("ReduceSum", "sum"), ("ReduceMean", "mean"), ("ReduceMax", "max"), ("ReduceMin", "min"),
    ("ReduceProd", "prod"),
):  # fmt: skip
    _contract = EVEN.get(_name, {})
    forms.add(_operator, f"torch.{_name}(x)", values=(1,), attributes=WHOLE, **_contract)(
        planned(partial(whole, getattr(torch, _name)))
    )


def chosen(function: Plan, x: Tensor, dim: int, keepdim: bool) -> Any:
    """`function` also tells where the elements are that it has chosen."""
    return function(x, dim, keepdim).values


for _operator, _function in (("ReduceMax", torch.max), ("ReduceMin", torch.min)):
    _name = _function.__name__
    forms.add(
        _operator,
        f"torch.{_name}(x, dim)",
        values=(1,),
        where=ONE,
        contract="first of equal",
        source=PAGE.format(_name),
    )(planned(partial(along_one, partial(chosen, _function))))


def norm(function: Plan, order: int, x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Any:
    """`function(x, order, dims, keepdim)`."""
    return function(x, order, dims, keepdim)


for _operator, _order in (("ReduceL1", 1), ("ReduceL2", 2)):
    for _title, _function in (("torch.norm", torch.norm), ("Tensor.norm", Tensor.norm)):
        forms.add(_operator, _title, values=(1,), attributes=NOT_EMPTY)(
            planned(partial(reduction, partial(norm, _function, _order)))
        )
forms.add("ReduceLogSumExp", "torch.special.logsumexp", values=(1,))(
    planned(partial(reduction, torch.special.logsumexp))
)


def sums(op: Any, x: Tensor, axes: Tensor | None = None, *, strided: bool) -> Tensor:
    chosen = () if axes is None else integers(axes)
    dims = {axis % x.ndim for axis in chosen or range(x.ndim)}
    kept = (1 if i in dims else n for i, n in enumerate(x.shape))
    rest = (n for i, n in enumerate(x.shape) if i not in dims)
    shape = tuple(kept) if op.keepdims else tuple(rest)
    keepdim = bool(op.keepdims)
    return into(lambda out: torch.sum(x, tuple(dims), keepdim, out=out), shape, x, strided)


with_buffers(forms, "ReduceSum", "torch.sum", sums, values=(1,), attributes=NOT_EMPTY)


def running(function: Plan, op: Any, x: Tensor, axis: Tensor) -> Plan:
    (dim,) = integers(axis)
    return lambda x, axis: function(x, dim)


PLAIN = {"exclusive": (0,), "reverse": (0,)}


def in_place(name: str, x: Tensor, dim: int) -> Any:
    """The method of this name writes into a copy."""
    return getattr(x.clone(), name)(dim)


def running_into(function: Plan, op: Any, x: Tensor, axis: Tensor, *, strided: bool) -> Tensor:
    (dim,) = integers(axis)
    return into(lambda out: function(x, dim, out=out), x.shape, x, strided)


for _operator, _name in (("CumSum", "cumsum"), ("CumProd", "cumprod")):
    _fields: Mapping[str, Any] = {"values": (1,), "attributes": PLAIN}
    forms.add(_operator, f"Tensor.{_name}", **_fields)(
        planned(partial(running, getattr(Tensor, _name)))
    )
    forms.add(_operator, f"Tensor.{_name}_", **_fields)(
        planned(partial(running, partial(in_place, f"{_name}_")))
    )
    _function = partial(running_into, getattr(torch, _name))
    with_buffers(forms, _operator, f"torch.{_name}", _function, **_fields)


def along_axis(function: Plan, op: Any, x: Tensor) -> Any:
    return function(x, op.axis)


def into_alike(function: Plan, op: Any, x: Tensor, strided: bool) -> Tensor:
    return into(lambda out: function(x, op.axis, out=out), x.shape, x, strided)


def module(cls: type[nn.Module], op: Any, x: Tensor) -> Plan:
    along: Plan = cls(op.axis)
    return along


for _operator, _name in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax")):
    for _title, _function in (
        (f"torch.nn.functional.{_name}", getattr(F, _name)),
        (f"torch.special.{_name}", getattr(torch.special, _name)),
        (f"Tensor.{_name}", getattr(Tensor, _name)),
    ):
        forms.add(_operator, _title)(partial(along_axis, _function))
    _module = getattr(nn, _operator)
    forms.add(_operator, f"torch.nn.{_operator}")(planned(partial(module, _module)))
    with_buffers(forms, _operator, f"torch.{_name}", partial(into_alike, getattr(torch, _name)))


@forms.add("Softmax", "torch.nn.Softmax2d", attributes={"axis": (-3,)})
@planned
def over_channels(op: Any, x: Tensor) -> Plan:
    if x.ndim not in (3, 4):
        raise Unsupported("torch.nn.Softmax2d has 3 or 4 axes")
    module: Plan = nn.Softmax2d()
    return module


LOSSES = {
    "SoftmaxCrossEntropyLoss": (nn.CrossEntropyLoss, {"outputs": 1}),
    "NegativeLogLikelihoodLoss": (nn.NLLLoss, {}),
}


def criterion(
    cls: type[nn.Module], op: Any, x: Tensor, labels: Tensor, weight: Tensor | None = None
) -> Plan:
    ignored = -100 if op.ignore_index is None else op.ignore_index

    def call(x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        judge = cls(constant(weight), ignore_index=ignored, reduction=op.reduction)
        loss: Tensor = judge(x, labels.long())
        return loss

    return call


for _operator, (_cls, _row) in LOSSES.items():
    forms.add(_operator, f"torch.nn.{_cls.__name__}", **_row)(planned(partial(criterion, _cls)))
