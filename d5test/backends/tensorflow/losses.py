"""Losses of class labels."""

from __future__ import annotations

from typing import Any

from d5test.backends.base import Table
from d5test.backends.tensorflow.arguments import channels_last
from d5test.backends.tensorflow.framework import tf

rows = Table()


def reduced(op: Any, loss: Any, labels: Any, weights: Any) -> Any:
    """The loss of each sample, weighted, without those to be ignored, and reduced."""
    w = tf.ones_like(loss) if weights is None else tf.gather(weights, labels[1])
    if op.ignore_index is not None:
        w = tf.where(labels[0] == op.ignore_index, tf.zeros_like(w), w)
    loss = (
        tf.where(w == 0, tf.zeros_like(loss), loss * w)
        if op.ignore_index is not None
        else loss * w
    )
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
