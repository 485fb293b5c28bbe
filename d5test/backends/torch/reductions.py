"""What goes along axes: sums, means, maxima, softmax, and the losses of class labels."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, planned
from d5test.backends.torch.arguments import constant, integers

rows = Table()


def reduction(function: Plan, op: Any, x: Tensor, axes: Tensor | None = None) -> Plan:
    """`function` takes a tensor, axes, and whether they are kept."""
    chosen = () if axes is None else integers(axes)
    if not chosen and op.noop_with_empty_axes:
        return lambda x, axes=None: x.clone()
    dims, keepdim = chosen or tuple(range(x.ndim)), bool(op.keepdims)
    return lambda x, axes=None: function(x, dims, keepdim)


rows.native("ReduceSum", values=(1,))(planned(partial(reduction, torch.sum)))
rows.native("ReduceMean", values=(1,))(planned(partial(reduction, torch.mean)))
AMAX = "https://docs.pytorch.org/docs/2.13/generated/torch.amax.html"
rows.native("ReduceMax", values=(1,), contract="even shares", source=AMAX)(
    planned(partial(reduction, torch.amax))
)
rows.native("ReduceLogSumExp", values=(1,))(planned(partial(reduction, torch.logsumexp)))


@rows.native("CumSum", values=(1,))
@planned
def cumsum(op: Any, x: Tensor, axis: Tensor) -> Plan:
    """Composed if exclusive or reversed, of which torch has neither."""
    (dim,) = integers(axis)
    if not op.exclusive and not op.reverse:
        return lambda x, axis: torch.cumsum(x, dim)

    def call(x: Tensor, axis: Tensor) -> Tensor:
        x = torch.flip(x, (dim,)) if op.reverse else x
        y = torch.cumsum(x, dim)
        if op.exclusive:
            zeros = torch.zeros_like(y.narrow(dim, 0, min(1, y.shape[dim])))
            y = torch.cat((zeros, y.narrow(dim, 0, max(0, y.shape[dim] - 1))), dim)
        return torch.flip(y, (dim,)) if op.reverse else y

    return call


def along_axis(function: Plan, op: Any, x: Tensor) -> Any:
    return function(x, op.axis)


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
