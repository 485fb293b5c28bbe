"""What goes along axes: sums, means, maxima, softmax, and the losses of class labels."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, planned
from d5test.backends.torch.arguments import constant, integers

rows = Table()


def reduction(
    function: Plan,
    op: Any,
    x: Tensor,
    axes: Tensor | None = None,
    *,
    of_one: Plan = torch.clone,
) -> Plan:
    """`function` takes a tensor, axes, and whether they are kept.

    `of_one` is what it makes of each element where nothing is reduced.
    """
    chosen = () if axes is None else integers(axes)
    if not chosen and op.noop_with_empty_axes:
        return lambda x, axes=None: of_one(x)
    dims, keepdim = chosen or tuple(range(x.ndim)), bool(op.keepdims)
    return lambda x, axes=None: function(x, dims, keepdim)


rows.native("ReduceSum", values=(1,))(planned(partial(reduction, torch.sum)))
rows.native("ReduceMean", values=(1,))(planned(partial(reduction, torch.mean)))
PAGE = "https://docs.pytorch.org/docs/2.13/generated/torch.{}.html"
for _operator, _function in (("ReduceMax", torch.amax), ("ReduceMin", torch.amin)):
    _source = PAGE.format(_function.__name__)
    rows.native(_operator, values=(1,), contract="even shares", source=_source)(
        planned(partial(reduction, _function))
    )
rows.native("ReduceLogSumExp", values=(1,))(planned(partial(reduction, torch.logsumexp)))


def norm(order: int, x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(x, order, dims, keepdim)
    return result


rows.native("ReduceL1", values=(1,))(
    planned(partial(reduction, partial(norm, 1), of_one=torch.abs))
)
rows.native("ReduceL2", values=(1,))(
    planned(partial(reduction, partial(norm, 2), of_one=torch.abs))
)


def log_sum(x: Tensor, *which: Any) -> Tensor:
    return torch.log(torch.sum(x, *which))


def sum_square(x: Tensor, *which: Any) -> Tensor:
    return torch.sum(torch.square(x), *which)


rows.composed("ReduceLogSum", values=(1,))(planned(partial(reduction, log_sum, of_one=torch.log)))
rows.composed("ReduceSumSquare", values=(1,))(
    planned(partial(reduction, sum_square, of_one=torch.square))
)


def product(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    """Composed (one axis after another) of several, of which torch has all or one."""
    if len(dims) == x.ndim and not keepdim:
        return torch.prod(x)
    for dim in sorted((dim % x.ndim for dim in dims), reverse=True):
        x = torch.prod(x, dim, keepdim)
    return x if dims else torch.prod(x)


rows.native("ReduceProd", values=(1,))(planned(partial(reduction, product)))


def cumulative(function: Plan, fill: float, op: Any, x: Tensor, axis: Tensor) -> Plan:
    """Composed if exclusive or reversed, of which torch has neither."""
    (dim,) = integers(axis)
    if not op.exclusive and not op.reverse:
        return lambda x, axis: function(x, dim)

    def call(x: Tensor, axis: Tensor) -> Tensor:
        x = torch.flip(x, (dim,)) if op.reverse else x
        y = function(x, dim)
        if op.exclusive:
            first = torch.full_like(y.narrow(dim, 0, min(1, y.shape[dim])), fill)
            y = torch.cat((first, y.narrow(dim, 0, max(0, y.shape[dim] - 1))), dim)
        return torch.flip(y, (dim,)) if op.reverse else y

    return call


rows.native("CumSum", values=(1,))(planned(partial(cumulative, torch.cumsum, 0.0)))
rows.native("CumProd", values=(1,))(planned(partial(cumulative, torch.cumprod, 1.0)))


def along_axis(function: Plan, op: Any, x: Tensor) -> Any:
    return function(x, op.axis)


@rows.native("LpNormalization")
def normalize(op: Any, x: Tensor) -> Tensor:
    return F.normalize(x, op.p, op.axis)


rows.native("Softmax")(partial(along_axis, torch.softmax))
rows.native("LogSoftmax")(partial(along_axis, torch.log_softmax))


def loss(function: Plan, op: Any, x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Plan:
    """Weights have no gradient; no label is -100, torch's ignored one."""
    ignored = -100 if op.ignore_index is None else op.ignore_index
    criterion = partial(function, ignore_index=ignored, reduction=op.reduction)
    if weight is None and labels.dtype == torch.int64:
        return criterion
    return lambda x, labels, weight=None: criterion(x, labels.long(), constant(weight))


# F.cross_entropy keeps its log-probabilities to itself: left out
rows.native("SoftmaxCrossEntropyLoss", outputs=1)(planned(partial(loss, F.cross_entropy)))
rows.native("NegativeLogLikelihoodLoss")(planned(partial(loss, F.nll_loss)))
