"""Reductions over axes, partial sums, normalised exponentials, and losses of a classifier.

The axes of a reduction are an input of int64, not an attribute; without them (absent, or empty)
all axes are reduced, or none with `noop_with_empty_axes`.

The classes of a loss run along axis 1: scores (n, c, *d), labels (n, *d) in int64, weights (c,).
An element whose label is `ignore_index` counts nowhere, and its label need not be a class.
"""

import math
from dataclasses import dataclass

import numpy as np

from d5test.case import Batch, Operator

__all__ = ["CumSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceSum"]
__all__ += ["LogSoftmax", "Softmax"]
__all__ += ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Reduction(Operator):
    """y = the reduction of x over `axes`. x: any shape; axes: (k,) in int64, or absent.

    y: x's shape with the reduced dimensions 1, or without them if `keepdims` is 0.
    """

    keepdims: int = 1
    noop_with_empty_axes: int = 0

    def reduce(self, x, axes):
        """The reduction, its dimensions kept."""
        raise NotImplementedError(f"{self.name} says no `reduce(x, axes)`")

    def gradient(self, dy, x, y, axes):
        """dx, from dy and y with their dimensions kept; it may still have to be broadcast."""
        raise NotImplementedError(f"{self.name} says no `gradient(dy, x, y, axes)`")

    def reduced(self, x, axes):
        """The axes to reduce, counted from the front; none: y is x."""
        if axes is None or axes.size == 0:
            return () if self.noop_with_empty_axes else tuple(range(x.ndim))
        return tuple(int(axis) % x.ndim for axis in axes)

    def forward(self, x, axes=None):
        axes = self.reduced(x, axes)
        if not axes:
            return x.copy()
        y = self.reduce(x, axes)
        return y if self.keepdims else y.squeeze(axes)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *axes), (y,) = grads, inputs, outputs
        over = self.reduced(x, *axes or [None])
        if not over:
            return dy, *(None for _ in axes)
        kept = tuple(1 if axis in over else size for axis, size in enumerate(x.shape))
        dx = self.gradient(dy.reshape(kept), x, y.reshape(kept), over)
        return np.broadcast_to(dx, x.shape), *(None for _ in axes)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceSum(Reduction):
    """y = sum of x; 0 over nothing. ONNX ReduceSum-13."""

    since = 13

    def reduce(self, x, axes):
        return x.sum(axes, keepdims=True)

    def gradient(self, dy, x, y, axes):
        return dy


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceMean(Reduction):
    """y = mean of x; undefined over nothing. ONNX ReduceMean-18."""

    since = 18

    def reduce(self, x, axes):
        return x.mean(axes, keepdims=True)

    def gradient(self, dy, x, y, axes):
        return dy / math.prod(x.shape[axis] for axis in axes)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceMax(Reduction):
    """y = max of x; minus infinity over nothing. ONNX ReduceMax-20.

    The gradient goes to the element it was taken from, at a tie to the first of them.
    """

    since = 20
    follows_shifts = True

    def reduce(self, x, axes):
        return largest(x, axes)

    def gradient(self, dy, x, y, axes):
        rest = tuple(axis for axis in range(x.ndim) if axis not in axes)
        order = rest + axes
        row = math.prod(x.shape[axis] for axis in axes)
        if row == 0:
            return np.zeros_like(x)
        rows = x.transpose(order).reshape(-1, row)
        drows = np.zeros_like(rows)
        np.put_along_axis(
            drows, np.argmax(rows, axis=1, keepdims=True), dy.transpose(order).reshape(-1, 1), 1
        )
        inverse = tuple(order.index(axis) for axis in range(x.ndim))
        return drows.reshape(tuple(x.shape[axis] for axis in order)).transpose(inverse)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceLogSumExp(Reduction):
    """y = ln(sum of e^x) = m + ln(sum of e^(x - m)), m = max of x. ONNX ReduceLogSumExp-28.

    Minus infinity over nothing. ONNX's function body computes it in float64 without m; an infinite
    m is left out, so that an infinite x gives what that body gives.
    """

    since = 28

    def reduce(self, x, axes):
        m = largest(x, axes)
        m = np.where(np.isfinite(m), m, 0.0)
        return m + np.log(np.exp(x - m).sum(axes, keepdims=True))

    def gradient(self, dy, x, y, axes):
        return dy * np.exp(x - y)


def largest(x, axes):
    """The largest elements along `axes`, dimensions kept; minus infinity where there are none."""
    if all(x.shape[axis] for axis in axes):
        return x.max(axes, keepdims=True)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return np.full_like(x, -np.inf, shape=shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class CumSum(Operator):
    """Partial sums along an axis: y[i] = x[0] + ... + x[i]. ONNX CumSum-14.

    x: any shape with an axis; axis: () in int64; y: as x. The last term is left out if
    `exclusive`; the sums run from the end if `reverse`.
    """

    exclusive: int = 0
    reverse: int = 0
    since = 14

    def forward(self, x, axis):
        axis = int(axis)
        x = np.flip(x, axis) if self.reverse else x
        y = np.cumsum(x, axis)
        if self.exclusive:
            last, rest = np.split(np.roll(y, 1, axis), [1], axis)
            y = np.concatenate([np.zeros_like(last), rest], axis)
        return np.flip(y, axis) if self.reverse else y

    def backward(self, grads, inputs, outputs):
        (dy,), (_, axis) = grads, inputs
        return self.with_(reverse=1 - self.reverse).forward(dy, axis), None


@dataclass(frozen=True, kw_only=True, repr=False)
class AlongAxis(Operator):
    """A function of the vectors along `axis`. x, y: any shape but a scalar."""

    axis: int = -1
    since = 13

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        (shape,) = shapes
        if shape is None or len(shape) < 2:
            return None
        free = 1 if self.axis % len(shape) == 0 else 0
        return Batch((free,), (free,))


@dataclass(frozen=True, kw_only=True, repr=False)
class Softmax(AlongAxis):
    """y = e^(x - m) / sum of e^(x - m), m = max of x along `axis`. ONNX Softmax-13."""

    def forward(self, x):
        e = np.exp(x - x.max(self.axis, keepdims=True))
        return e / e.sum(self.axis, keepdims=True)

    def backward(self, grads, inputs, outputs):
        (dy,), (y,) = grads, outputs
        return y * (dy - (dy * y).sum(self.axis, keepdims=True))


@dataclass(frozen=True, kw_only=True, repr=False)
class LogSoftmax(AlongAxis):
    """y = x - m - ln(sum of e^(x - m)), m = max of x along `axis`. ONNX LogSoftmax-13.

    Written as x - (m + ln(sum)), which rounds the larger numbers: a logsumexp is often at hand.
    """

    def forward(self, x):
        m = x.max(self.axis, keepdims=True)
        return x - (m + np.log(np.exp(x - m).sum(self.axis, keepdims=True)))

    def backward(self, grads, inputs, outputs):
        (dy,), (y,) = grads, outputs
        return dy - np.exp(y) * dy.sum(self.axis, keepdims=True)


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

    def forward(self, log_prob, labels, weights=None):
        share, classes = self.share(labels, weights)
        taken = np.take_along_axis(log_prob, np.expand_dims(classes, 1), 1).squeeze(1)
        loss = -share * taken
        if self.reduction == "none":
            return loss
        return loss.sum() / share.sum() if self.reduction == "mean" else loss.sum()

    def backward(self, grads, inputs, outputs):
        (dloss,), (log_prob, labels, *weights) = grads, inputs
        share, classes = self.share(labels, *weights or [None])
        dtaken = -share * (dloss / share.sum() if self.reduction == "mean" else dloss)
        dlog_prob = np.zeros_like(log_prob)
        np.put_along_axis(dlog_prob, np.expand_dims(classes, 1), np.expand_dims(dtaken, 1), 1)
        return dlog_prob, None, *(None for _ in weights)


@dataclass(frozen=True, kw_only=True, repr=False)
class NegativeLogLikelihoodLoss(Loss):
    """The negative logarithm of the label's probability. ONNX NegativeLogLikelihoodLoss-22.

    log_prob: (n, c, *d); the loss: (n, *d) or ().
    """

    since = 22


@dataclass(frozen=True, kw_only=True, repr=False)
class SoftmaxCrossEntropyLoss(Loss):
    """NegativeLogLikelihoodLoss of the scores' LogSoftmax. ONNX SoftmaxCrossEntropyLoss-13.

    scores: (n, c, *d); the loss: (n, *d) or (); log_prob: (n, c, *d).
    """

    since = 13

    def forward(self, scores, labels, weights=None):
        log_prob = LogSoftmax(axis=1).forward(scores)
        return super().forward(log_prob, labels, weights), log_prob

    def backward(self, grads, inputs, outputs):
        """What flows through the loss and what through log_prob, each by itself: a fused loss
        rounds its own gradient before they are added. Others add them first, which rounds, too.
        """
        (dloss, dlog_prob), (scores, *labels), (_, log_prob) = grads, inputs, outputs
        through = LogSoftmax(axis=1).backward
        dloss, *absent = super().backward((dloss,), (log_prob, *labels), outputs)
        apart = (dloss, dlog_prob + (dloss - dloss))  # the same numbers, rounded once more
        by_loss, by_log_prob = (through((d,), (scores,), (log_prob,)) for d in apart)
        return by_loss + by_log_prob, *absent
