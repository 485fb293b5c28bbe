"""Losses of a classifier, against whole-number labels.

Classes run along axis 1: scores (n, c, *d), labels (n, *d) in int64, weights (c,). An element
whose label is `ignore_index` counts nowhere, and its label need not be a class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d5test.case import Operator
from d5test.reference.operators.softmax import LogSoftmax

__all__ = ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Loss(Operator):
    """loss = -weights[label] log_prob[label]: each (n, *d), their sum, or their weighted mean.

    `reduction` is "none", "sum" or "mean", which divides by the sum of weights[label]; without
    weights each is 1. There is no gradient for labels and weights.
    """

    ignore_index: int | None = None
    reduction: str = "mean"

    def share(self, labels, weights):
        """The weight of each element, (n, *d), and its class, 0 where it is ignored."""
        if self.ignore_index is None:
            counts = np.ones(labels.shape, bool)
        else:
            counts = labels != self.ignore_index
        classes = np.where(counts, labels, 0)
        return (counts * 1.0 if weights is None else counts * weights[classes]), classes

    def loss(self, log_prob, labels, weights):
        share, classes = self.share(labels, weights)
        taken = np.take_along_axis(log_prob, np.expand_dims(classes, 1), 1).squeeze(1)
        loss = -share * taken
        if self.reduction == "none":
            return loss
        return loss.sum() / share.sum() if self.reduction == "mean" else loss.sum()

    def loss_gradient(self, dloss, log_prob, labels, weights):
        """The gradient of `loss` by `log_prob`."""
        share, classes = self.share(labels, weights)
        dtaken = -share * (dloss / share.sum() if self.reduction == "mean" else dloss)
        dlog_prob = np.zeros_like(log_prob)
        np.put_along_axis(dlog_prob, np.expand_dims(classes, 1), np.expand_dims(dtaken, 1), 1)
        return dlog_prob


@dataclass(frozen=True, kw_only=True, repr=False)
class NegativeLogLikelihoodLoss(Loss):
    """The negative logarithm of the label's probability. ONNX NegativeLogLikelihoodLoss-22.

    log_prob: (n, c, *d); the loss: (n, *d) or ().
    """

    since = 22

    def forward(self, log_prob, labels, weights=None):
        return self.loss(log_prob, labels, weights)

    def backward(self, grads, inputs, outputs):
        (dloss,), (log_prob, labels, *weights) = grads, inputs
        dlog_prob = self.loss_gradient(dloss, log_prob, labels, *weights or [None])
        return dlog_prob, None, *(None for _ in weights)


@dataclass(frozen=True, kw_only=True, repr=False)
class SoftmaxCrossEntropyLoss(Loss):
    """NegativeLogLikelihoodLoss of the scores' LogSoftmax. ONNX SoftmaxCrossEntropyLoss-13.

    scores: (n, c, *d); the loss: (n, *d) or (); log_prob: (n, c, *d).
    """

    since = 13

    def forward(self, scores, labels, weights=None):
        log_prob = LogSoftmax(axis=1).forward(scores)
        return self.loss(log_prob, labels, weights), log_prob

    def backward(self, grads, inputs, outputs):
        """What flows through the loss and what through log_prob, each by itself: a fused loss
        rounds its own gradient before they are added.
        """
        (dloss, dlog_prob), (scores, labels, *weights), (_, log_prob) = grads, inputs, outputs
        through = LogSoftmax(axis=1).backward
        dloss = self.loss_gradient(dloss, log_prob, labels, *weights or [None])
        by_loss, by_log_prob = (through((d,), (scores,), (log_prob,)) for d in (dloss, dlog_prob))
        return by_loss + by_log_prob, None, *(None for _ in weights)
