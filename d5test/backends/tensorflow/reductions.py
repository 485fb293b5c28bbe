"""What goes along axes: sums, means, maxima, softmax, and the losses of class labels."""

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.tensorflow.framework import channels_last, numbers, tf

rows = Table()


def reduction(
    function: Plan, op: Any, data: Any, axes: Any = None, *, of_one: Plan = tf.identity
) -> Plan:
    """`function` has `axis` and `keepdims`; `of_one` is what it makes of a single element."""
    chosen = [] if axes is None else numbers(axes)
    if not chosen and op.noop_with_empty_axes:
        return lambda data, axes=None: of_one(data)
    keepdims = bool(op.keepdims)
    return lambda data, axes=None: function(data, chosen or None, keepdims=keepdims)


rows.native("ReduceSum", values=(1,))(planned(partial(reduction, tf.reduce_sum)))
rows.native("ReduceMean", arithmetic="S", values=(1,))(planned(partial(reduction, tf.reduce_mean)))
REDUCE_MAX = "https://www.tensorflow.org/api_docs/python/tf/math/reduce_max"
rows.native("ReduceMax", arithmetic="F", values=(1,), propagates_nan=True, source=REDUCE_MAX)(
    planned(partial(reduction, tf.reduce_max))
)
rows.native("ReduceMin", arithmetic="F", values=(1,))(planned(partial(reduction, tf.reduce_min)))
rows.native("ReduceLogSumExp", arithmetic="S", values=(1,))(
    planned(partial(reduction, tf.reduce_logsumexp))
)
rows.native("ReduceProd", arithmetic="S", values=(1,))(planned(partial(reduction, tf.reduce_prod)))
rows.native("ReduceL2", arithmetic="S", values=(1,))(
    planned(partial(reduction, tf.math.reduce_euclidean_norm, of_one=tf.abs))
)


def sum_of(function: Plan, x: Any, axis: Any, keepdims: bool) -> Any:
    return tf.reduce_sum(function(x), axis, keepdims=keepdims)


def log_of_sum(x: Any, axis: Any, keepdims: bool) -> Any:
    return tf.math.log(tf.reduce_sum(x, axis, keepdims=keepdims))


rows.composed("ReduceL1", arithmetic="S", values=(1,))(
    planned(partial(reduction, partial(sum_of, tf.abs), of_one=tf.abs))
)
rows.composed("ReduceSumSquare", arithmetic="S", values=(1,))(
    planned(partial(reduction, partial(sum_of, tf.square), of_one=tf.square))
)
rows.composed("ReduceLogSum", arithmetic="S", values=(1,))(
    planned(partial(reduction, log_of_sum, of_one=tf.math.log))
)


def cumulative(function: Plan, op: Any, x: Any, axis: Any) -> Plan:
    (over,), exclusive, reverse = numbers(axis), bool(op.exclusive), bool(op.reverse)
    return lambda x, axis: function(x, over, exclusive=exclusive, reverse=reverse)


rows.native("CumSum", arithmetic="S", values=(1,))(planned(partial(cumulative, tf.cumsum)))
rows.native("CumProd", arithmetic="S", values=(1,))(planned(partial(cumulative, tf.math.cumprod)))


def along_axis(function: Plan, op: Any, x: Any) -> Any:
    return function(x, op.axis)


@rows.native("LpNormalization", arithmetic="S")
def l2_normalize(op: Any, x: Any) -> Any:
    """Composed (of a sum) with another norm than that of Euclid."""
    if op.p == 2:
        return tf.math.l2_normalize(x, op.axis)
    return tf.math.divide_no_nan(x, tf.reduce_sum(tf.abs(x), op.axis, keepdims=True))


rows.native("Softmax", arithmetic="S")(partial(along_axis, tf.nn.softmax))
rows.native("LogSoftmax", arithmetic="S")(partial(along_axis, tf.nn.log_softmax))


def reduced(op: Any, loss: Any, labels: Any, weights: Any) -> Any:
    """The loss of each sample, weighted, without those to be ignored, and reduced."""
    w = tf.ones_like(loss) if weights is None else tf.gather(weights, labels[1])
    if op.ignore_index is None:
        loss = loss * w
    else:
        w = tf.where(labels[0] == op.ignore_index, tf.zeros_like(w), w)
        loss = tf.where(w == 0, tf.zeros_like(loss), loss * w)
    if op.reduction == "none":
        return loss
    total = tf.reduce_sum(loss)
    return total if op.reduction == "sum" else total / tf.reduce_sum(w)


def both_labels(op: Any, labels: Any) -> tuple[Any, Any]:
    """As given, and with those to be ignored replaced by a class that exists."""
    if op.ignore_index is None:
        return labels, labels
    return labels, tf.where(labels == op.ignore_index, tf.zeros_like(labels), labels)


@rows.composed("SoftmaxCrossEntropyLoss", arithmetic="S")
def softmax_cross_entropy_loss(op: Any, scores: Any, labels: Any, weights: Any = None) -> Any:
    both = both_labels(op, labels)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
        both[1], tf.transpose(scores, channels_last(scores.ndim))
    )
    return reduced(op, loss, both, weights), tf.nn.log_softmax(scores, 1)


@rows.composed("NegativeLogLikelihoodLoss", arithmetic="S")
def negative_log_likelihood_loss(op: Any, x: Any, target: Any, weight: Any = None) -> Any:
    both = both_labels(op, target)
    loss = -tf.gather(tf.transpose(x, channels_last(x.ndim)), both[1], batch_dims=x.ndim - 1)
    return reduced(op, loss, both, weight)
