"""What goes along axes: sums, means, maxima, softmax, and the losses of class labels."""

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.framework import Array, integers, jnp, lax, nn

rows = Table()


def reduction(
    function: Plan, op: Any, x: Array, axes: Any = None, *, of_one: Plan = lambda x: x
) -> Plan:
    """`function` has `axis` and `keepdims`; `of_one` is what it makes of a single element."""
    which = () if axes is None else integers(axes)
    if not which and op.noop_with_empty_axes:
        return lambda x, axes=None: of_one(x)
    over, keepdims = which or None, bool(op.keepdims)
    return lambda x, axes=None: function(x, axis=over, keepdims=keepdims)


def extreme(function: Plan, of_nothing: float, x: Array, **which: Any) -> Array:
    return function(x, **which) if x.size else function(x, **which, initial=of_nothing)


rows.native("ReduceSum", arithmetic="F", values=(1,))(planned(partial(reduction, jnp.sum)))
rows.native("ReduceMean", arithmetic="F", values=(1,))(planned(partial(reduction, jnp.mean)))
rows.native("ReduceMax", arithmetic="F", values=(1,))(
    planned(partial(reduction, partial(extreme, jnp.max, -jnp.inf)))
)
rows.native("ReduceMin", arithmetic="F", values=(1,))(
    planned(partial(reduction, partial(extreme, jnp.min, jnp.inf)))
)
rows.native("ReduceProd", arithmetic="S", values=(1,))(planned(partial(reduction, jnp.prod)))
for _operator, _order in (("ReduceL1", 1), ("ReduceL2", 2)):
    rows.native(_operator, values=(1,))(
        planned(partial(reduction, partial(jnp.linalg.vector_norm, ord=_order), of_one=jnp.abs))
    )


def log_sum(x: Array, **which: Any) -> Array:
    return jnp.log(jnp.sum(x, **which))


def sum_square(x: Array, **which: Any) -> Array:
    return jnp.sum(jnp.square(x), **which)


rows.composed("ReduceLogSum", values=(1,))(planned(partial(reduction, log_sum, of_one=jnp.log)))
rows.composed("ReduceSumSquare", values=(1,))(
    planned(partial(reduction, sum_square, of_one=jnp.square))
)
rows.native("ReduceLogSumExp", values=(1,))(planned(partial(reduction, nn.logsumexp)))


def cumulative(function: Plan, fill: float, op: Any, x: Array, axis: Array) -> Plan:
    """Composed (shifted) if exclusive, which jax does not know."""
    (over,) = integers(axis)
    over %= x.ndim
    if not op.exclusive:
        return lambda x, axis: function(x, over, reverse=bool(op.reverse))
    shifted, kept = [(0, 0)] * x.ndim, [slice(None)] * x.ndim
    shifted[over] = (0, 1) if op.reverse else (1, 0)
    kept[over] = slice(1, None) if op.reverse else slice(x.shape[over])
    index = tuple(kept)

    def call(x: Array, axis: Array) -> Array:
        y = function(x, over, reverse=bool(op.reverse))
        return jnp.pad(y, shifted, constant_values=fill)[index]

    return call


# the scan adds partial sums as the dtype has them
rows.native("CumSum", arithmetic="S", values=(1,))(planned(partial(cumulative, lax.cumsum, 0.0)))
rows.native("CumProd", arithmetic="S", values=(1,))(planned(partial(cumulative, lax.cumprod, 1.0)))


def along_axis(function: Plan, op: Any, x: Array) -> Any:
    return function(x, op.axis)


@rows.composed("LpNormalization", arithmetic="S")
def normalize(op: Any, x: Array) -> Array:
    norm = jnp.linalg.vector_norm(x, axis=op.axis, keepdims=True, ord=op.p)
    return x / jnp.where(norm == 0, 1, norm)


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
