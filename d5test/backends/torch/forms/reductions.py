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
from d5test.backends.torch.reductions import AMAX, reduction

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
EVEN: Mapping[str, Any] = {"contract": "even shares", "source": AMAX}
for _operator, _name in (
    ("ReduceSum", "sum"), ("ReduceMean", "mean"), ("ReduceMax", "amax"),
    ("ReduceLogSumExp", "logsumexp"),
):  # fmt: skip
    _method = getattr(Tensor, _name)
    _contract = EVEN if _name == "amax" else {}
    forms.add(_operator, f"Tensor.{_name}", values=(1,), **_contract)(
        planned(partial(reduction, _method))
    )
    forms.add(_operator, f"torch.{_name}(dim=int)", values=(1,), where=ONE, **_contract)(
        planned(partial(along_one, getattr(torch, _name)))
    )
for _operator, _name in (("ReduceSum", "sum"), ("ReduceMean", "mean"), ("ReduceMax", "max")):
    _contract = EVEN if _name == "max" else {}
    forms.add(_operator, f"torch.{_name}(x)", values=(1,), attributes=WHOLE, **_contract)(
        planned(partial(whole, getattr(torch, _name)))
    )
forms.add(
    "ReduceMax",
    "torch.max(x, dim)",
    values=(1,),
    where=ONE,
    contract="first of equal",
    source="https://docs.pytorch.org/docs/2.13/generated/torch.max.html",
)(planned(partial(along_one, lambda x, dim, keepdim: torch.max(x, dim, keepdim).values)))
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
forms.add("CumSum", "Tensor.cumsum", values=(1,), attributes=PLAIN)(
    planned(partial(running, Tensor.cumsum))
)
forms.add("CumSum", "Tensor.cumsum_", values=(1,), attributes=PLAIN)(
    planned(partial(running, lambda x, dim: x.clone().cumsum_(dim)))
)


def running_sums(op: Any, x: Tensor, axis: Tensor, *, strided: bool) -> Tensor:
    (dim,) = integers(axis)
    return into(lambda out: torch.cumsum(x, dim, out=out), x.shape, x, strided)


with_buffers(forms, "CumSum", "torch.cumsum", running_sums, values=(1,), attributes=PLAIN)


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
