"""What goes along axes: sums, means, maxima, softmax, and the losses of class labels."""

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.tensorflow.framework import channels_last, integers, tf

rows = Table()


def reduction(function: Plan, op: Any, data: Any, axes: Any = None) -> Plan:
    """`function` has `axis` and `keepdims`."""
    chosen = [] if axes is None else integers(axes)
    if not chosen and op.noop_with_empty_axes:
        return lambda data, axes=None: tf.identity(data)
    keepdims = bool(op.keepdims)
    return lambda data, axes=None: function(data, chosen or None, keepdims=keepdims)


rows.native("ReduceSum", values=(1,))(planned(partial(reduction, tf.reduce_sum)))
rows.native("ReduceMean", arithmetic="S", values=(1,))(planned(partial(reduction, tf.reduce_mean)))
REDUCE_MAX = "https://www.tensorflow.org/api_docs/python/tf/math/reduce_max"
rows.native("ReduceMax", arithmetic="F", values=(1,), propagates_nan=True, source=REDUCE_MAX)(
    planned(partial(reduction, tf.reduce_max))
)
rows.native("ReduceLogSumExp", arithmetic="S", values=(1,))(
    planned(partial(reduction, tf.reduce_logsumexp))
)


@rows.native("CumSum", arithmetic="S", values=(1,))
@planned
def cumsum(op: Any, x: Any, axis: Any) -> Plan:
    (over,), exclusive, reverse = integers(axis), bool(op.exclusive), bool(op.reverse)
    return lambda x, axis: tf.cumsum(x, over, exclusive=exclusive, reverse=reverse)


def along_axis(function: Plan, op: Any, x: Any) -> Any:
    return function(x, op.axis)


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
