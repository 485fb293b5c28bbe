"""What goes along axes: sums, means, maxima, softmax, and the losses of class labels."""

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.framework import Array, integers, jnp, lax, nn

rows = Table()


def reduction(function: Plan, op: Any, x: Array, axes: Any = None) -> Plan:
    """`function` has `axis` and `keepdims`."""
    which = () if axes is None else integers(axes)
    if not which and op.noop_with_empty_axes:
        return lambda x, axes=None: x
    over, keepdims = which or None, bool(op.keepdims)
    return lambda x, axes=None: function(x, axis=over, keepdims=keepdims)


def largest(x: Array, **which: Any) -> Array:
    return jnp.max(x, **which) if x.size else jnp.max(x, **which, initial=-jnp.inf)


rows.native("ReduceSum", arithmetic="F", values=(1,))(planned(partial(reduction, jnp.sum)))
rows.native("ReduceMean", arithmetic="F", values=(1,))(planned(partial(reduction, jnp.mean)))
rows.native("ReduceMax", arithmetic="F", values=(1,))(planned(partial(reduction, largest)))
rows.native("ReduceLogSumExp", values=(1,))(planned(partial(reduction, nn.logsumexp)))


# the scan adds partial sums as the dtype has them
@rows.native("CumSum", arithmetic="S", values=(1,))
@planned
def cumsum(op: Any, x: Array, axis: Array) -> Plan:
    """Composed (shifted) if exclusive, which jax does not know."""
    (over,) = integers(axis)
    over %= x.ndim
    if not op.exclusive:
        return lambda x, axis: lax.cumsum(x, over, reverse=bool(op.reverse))
    shifted, kept = [(0, 0)] * x.ndim, [slice(None)] * x.ndim
    shifted[over] = (0, 1) if op.reverse else (1, 0)
    kept[over] = slice(1, None) if op.reverse else slice(x.shape[over])
    index = tuple(kept)

    def call(x: Array, axis: Array) -> Array:
        return jnp.pad(lax.cumsum(x, over, reverse=bool(op.reverse)), shifted)[index]

    return call


def along_axis(function: Plan, op: Any, x: Array) -> Any:
    return function(x, op.axis)


rows.native("Softmax")(partial(along_axis, nn.softmax))
# its derivative sums the upstream gradients as they are stored (`lax.reduce_sum` of float16)
rows.native("LogSoftmax", arithmetic="S")(partial(along_axis, nn.log_softmax))


@rows.composed("NegativeLogLikelihoodLoss")
def nll(op: Any, log_prob: Array, target: Array, weight: Array | None = None) -> Array:
    none = jnp.zeros(target.shape, bool)
    ignored = none if op.ignore_index is None else target == op.ignore_index
    label = jnp.where(ignored, 0, target)
    w = jnp.ones(label.shape, log_prob.dtype) if weight is None else weight[label]
    w = jnp.where(ignored, 0, w)
    loss = -w * jnp.take_along_axis(log_prob, label[:, None], 1).squeeze(1)
    if op.reduction == "none":
        return loss
    return loss.sum() if op.reduction == "sum" else loss.sum() / w.sum()


@rows.composed("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(op: Any, scores: Array, *target: Array) -> Any:
    log_prob = nn.log_softmax(scores, 1)
    return nll(op, log_prob, *target), log_prob
