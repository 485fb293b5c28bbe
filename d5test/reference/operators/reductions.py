"""Reductions over axes, partial sums, normalised exponentials, and losses of a classifier.

The axes of a reduction are an input of int64, not an attribute; without them (absent, or empty)
all axes are reduced, or none with `noop_with_empty_axes`: then y is x, but for what is done beside
the reduction, as is the logarithm of ReduceLogSum.

The classes of a loss run along axis 1: scores (n, c, *d), labels (n, *d) in int64, weights (c,).
An element whose label is `ignore_index` counts nowhere, and its label need not be a class.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from d5test.case import Batch, Operator

__all__ = ["CumSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceSum"]
__all__ += ["CumProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMin", "ReduceProd"]
__all__ += ["ReduceSumSquare"]
__all__ += ["LogSoftmax", "LpNormalization", "Softmax"]
__all__ += ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Reduction(Operator):
    """y = the reduction of x over `axes`. x: any shape; axes: (k,) in int64, or absent.

    y: x's shape with the reduced dimensions 1, or without them if `keepdims` is 0.
    """

    keepdims: int = 1
    noop_with_empty_axes: int = 0
    alone: ClassVar[bool] = True
    """Whether the reduction of a single element is that element."""

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
        if self.alone and not axes:
            return x.copy()
        y = self.reduce(x, axes)
        return y if self.keepdims else y.squeeze(axes)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *axes), (y,) = grads, inputs, outputs
        over = self.reduced(x, *axes or [None])
        if self.alone and not over:
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
class Chosen(Reduction):
    """The element that is furthest to one side.

    The gradient goes to the element it was taken from, at a tie to the first of them.
    """

    since = 20
    follows_shifts = True
    side: ClassVar[int]
    """1 for the largest, -1 for the smallest."""

    def reduce(self, x, axes):
        return largest(x, axes) if self.side > 0 else smallest(x, axes)

    def gradient(self, dy, x, y, axes):
        rest = tuple(axis for axis in range(x.ndim) if axis not in axes)
        order = rest + axes
        row = math.prod(x.shape[axis] for axis in axes)
        if row == 0:
            return np.zeros_like(x)
        rows = x.transpose(order).reshape(-1, row)
        drows = np.zeros_like(rows)
        first = (np.argmax if self.side > 0 else np.argmin)(rows, axis=1, keepdims=True)
        np.put_along_axis(drows, first, dy.transpose(order).reshape(-1, 1), 1)
        inverse = tuple(order.index(axis) for axis in range(x.ndim))
        return drows.reshape(tuple(x.shape[axis] for axis in order)).transpose(inverse)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceMax(Chosen):
    """y = max of x; minus infinity over nothing. ONNX ReduceMax-20."""

    side = 1


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceMin(Chosen):
    """y = min of x; infinity over nothing. ONNX ReduceMin-20."""

    side = -1


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceProd(Reduction):
    """y = product of x; 1 over nothing. ONNX ReduceProd-18.

    The gradient is the product of the others, those before and those behind.
    """

    since = 18

    def reduce(self, x, axes):
        return x.prod(axes, keepdims=True)

    def gradient(self, dy, x, y, axes):
        moved = np.moveaxis(x, axes, range(len(axes)))
        factors = self.factors(x, axes)
        behind = np.flip(products(np.flip(factors, 0), exclusive=1), 0)
        others = (products(factors, exclusive=1) * behind).reshape(moved.shape)
        return dy * np.moveaxis(others, range(len(axes)), axes)

    def factors(self, x, axes):
        """The elements along these axes as those along the first of an array."""
        moved = np.moveaxis(x, axes, range(len(axes)))
        return moved.reshape(math.prod(moved.shape[: len(axes)]), *moved.shape[len(axes) :])

    def other_backward(self, grads, inputs):
        return ProductByQuotient(**vars(self)).backward(grads, inputs, self(*inputs))


class ProductByQuotient(ReduceProd):
    """ReduceProd with the gradient dy y / x, y multiplied up in turn: nothing where x is zero."""

    def gradient(self, dy, x, y, axes):
        product = in_turn(self.factors(x, axes))
        return dy * (product[-1].reshape(y.shape) if len(product) else y) / x


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceL1(Reduction):
    """y = sum of |x|; 0 over nothing. ONNX ReduceL1-18."""

    alone = False
    since = 18

    def reduce(self, x, axes):
        return np.abs(x).sum(axes, keepdims=True)

    def gradient(self, dy, x, y, axes):
        return dy * np.sign(x)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceL2(Reduction):
    """y = sqrt(sum of x^2); 0 over nothing. ONNX ReduceL2-18."""

    alone = False
    since = 18

    def reduce(self, x, axes):
        return np.sqrt((x * x).sum(axes, keepdims=True))

    def gradient(self, dy, x, y, axes):
        return dy * (x / y)  # |x| <= y: neither overflows; what underflows there, dy scales


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceLogSum(Reduction):
    """y = ln(sum of x); minus infinity over nothing. ONNX ReduceLogSum-28."""

    alone = False
    since = 28

    def reduce(self, x, axes):
        return np.log(x.sum(axes, keepdims=True))

    def gradient(self, dy, x, y, axes):
        return dy / x.sum(axes, keepdims=True)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceSumSquare(Reduction):
    """y = sum of x^2; 0 over nothing. ONNX ReduceSumSquare-18."""

    alone = False
    since = 18

    def reduce(self, x, axes):
        return (x * x).sum(axes, keepdims=True)

    def gradient(self, dy, x, y, axes):
        return dy * (2 * x)


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


def furthest(choose, of_nothing, x, axes):
    """The elements that `choose` finds along `axes`, dimensions kept.

    Of nothing it is an infinity; of booleans the least or greatest of these.
    """
    if all(x.shape[axis] for axis in axes):
        return choose(x, axis=axes, keepdims=True)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return np.full_like(x, of_nothing > 0 if x.dtype == bool else of_nothing, shape=shape)


largest = partial(furthest, np.max, -np.inf)
smallest = partial(furthest, np.min, np.inf)


def products(factors, *, exclusive=0):
    """The product of the factors up to each, along the first axis; without it, if `exclusive`."""
    y = np.ones_like(factors)
    for i in range(len(factors)):
        y[i] = factors[: i + 1 - exclusive].prod(0)
    return y


def in_turn(factors):
    """As `products`, each from the one before it: what becomes too small is known."""
    y = factors.copy()
    for i in range(1, len(y)):
        y[i] = y[i - 1] * factors[i]
    return y


@dataclass(frozen=True, kw_only=True, repr=False)
class Cumulative(Operator):
    """What is taken of the elements up to each, along an axis.

    x: any shape with an axis; axis: () in int64; y: as x. The last element is left out if
    `exclusive`; they run from the end if `reverse`.
    """

    exclusive: int = 0
    reverse: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class CumSum(Cumulative):
    """Partial sums along an axis: y[i] = x[0] + ... + x[i]. ONNX CumSum-14."""

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
class CumProd(Cumulative):
    """Partial products along an axis: y[i] = x[0] ... x[i]. ONNX CumProd-26.

    dx[i] = x[0] ... x[i - 1] (dy[i] + dy[i + 1] x[i + 1] + dy[i + 2] x[i + 1] x[i + 2] + ...)
    """

    since = 26

    def in_order(self, x, axis):
        """The elements along the first axis, in the order in which they are multiplied."""
        x = np.moveaxis(x, int(axis), 0)
        return np.flip(x, 0) if self.reverse else x

    def back(self, y, axis):
        """The inverse of `in_order`."""
        return np.moveaxis(np.flip(y, 0) if self.reverse else y, 0, int(axis))

    def forward(self, x, axis):
        return self.back(products(self.in_order(x, axis), exclusive=self.exclusive), axis)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, axis) = grads, inputs
        dy, factors = self.in_order(dy, axis), self.in_order(x, axis)
        dx = products(factors, exclusive=1)
        for i in range(len(dx)):
            behind = products(factors[i + 1 :], exclusive=self.exclusive)
            terms = dy[i + 1 :] * behind
            if not self.exclusive:
                terms = np.concatenate([dy[i : i + 1], terms])
            dx[i] = dx[i] * terms.sum(0)
        return self.back(dx, axis), None

    def other_backward(self, grads, inputs):
        """The sum of y dy from each element on, over x, as frameworks have it."""
        (dy,), (x, axis) = grads, inputs
        y = in_turn(self.in_order(x, axis))
        if self.exclusive:
            y = np.concatenate([np.ones_like(y[:1]), y[:-1]])
        sums = CumSum(exclusive=self.exclusive, reverse=1 - self.reverse)
        return sums.forward(dy * self.back(y, axis), axis) / x, None


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

    def other_backward(self, grads, inputs):
        """That of e^(x - m - ln(sum)), which subtracts what is multiplied by y already."""
        (dy,), (x,) = grads, inputs
        d = x - x.max(self.axis, keepdims=True)
        flow = dy * np.exp(d - np.log(np.exp(d).sum(self.axis, keepdims=True)))
        return (flow - self.forward(x) * flow.sum(self.axis, keepdims=True),)


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
class LpNormalization(AlongAxis):
    """y = x over the sum of |x|, or over sqrt(sum of x^2), along `axis`. ONNX LpNormalization-22.

    0 where that norm, of order `p` 1 or 2, is 0.
    """

    p: int = 2
    since = 22

    def norm(self, x):
        """The norms, and 1 where they are 0."""
        norm = (ReduceL1 if self.p == 1 else ReduceL2)().reduce(x, (self.axis,))
        return np.where(norm == 0, 1.0, norm)

    def forward(self, x):
        return x / self.norm(x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,), (y,) = grads, inputs, outputs
        slope = np.sign(x) if self.p == 1 else y
        return (dy - slope * (dy * y).sum(self.axis, keepdims=True)) / self.norm(x)

    def other_backward(self, grads, inputs):
        """The gradient of a quotient, whose terms are divided before they are summed."""
        (dy,), (x,) = grads, inputs
        norm = self.norm(x)
        slope = np.sign(x) if self.p == 1 else x / norm
        return (dy / norm - slope * (dy * (x / norm) / norm).sum(self.axis, keepdims=True),)


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
