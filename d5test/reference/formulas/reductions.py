"""Reductions and softmax: axes, ties, and where a sum begins."""

from dataclasses import dataclass
from math import prod

import numpy as np

from d5test.reference.formulas.table import Table, mixed
from d5test.reference.operators import reductions


class CumProdFlatAtZero(reductions.CumProd):
    """CumProd whose gradient is the sum of y dy from each element on, over x: 0 where x is."""

    def backward(self, grads, inputs, outputs):
        dx, axis = super().backward(grads, inputs, outputs)
        return np.where(inputs[0] == 0, 0.0, dx), axis


class ShiftFromZero(reductions.ReduceLogSumExp):
    """ReduceLogSumExp whose maximum starts from 0 where the first element is infinite."""

    def reduce(self, x, axes):
        if not x.size:
            return super().reduce(x, axes)
        first = x[tuple(slice(1 if axis in axes else None) for axis in range(x.ndim))]
        m = reductions.largest(x, axes)
        m = np.where(np.isinf(first), np.maximum(m, 0.0), m)
        m = np.where(np.isfinite(m), m, 0.0)
        return m + np.log(np.exp(x - m).sum(axes, keepdims=True))


class FromTheFrontOnly(reductions.Reduction):
    """A reduction that, of an empty tensor, ignores axes counted from the end."""

    def reduced(self, x, axes):
        if x.size or axes is None or not axes.size:
            return super().reduced(x, axes)
        return tuple(int(axis) for axis in axes if axis >= 0)


class EvenShares(reductions.Chosen):
    """ReduceMax or ReduceMin whose equal elements have equal shares of the gradient.

    A sign has no bar: which elements are equal is not in doubt.
    """

    def gradient(self, dy, x, y, axes):
        equal = ~np.signbit(self.side * x - self.side * y)
        return dy * equal / equal.sum(axes, keepdims=True)


class FirstOfEqual(reductions.Chosen):
    """ReduceMax or ReduceMin along one axis, whose gradient goes to the first of equal ones."""

    def gradient(self, dy, x, y, axes):
        (axis,) = axes
        dx = np.zeros_like(x)
        if x.size:
            first = np.argmax(~np.signbit(self.side * x - self.side * y), axis, keepdims=True)
            np.put_along_axis(dx, first, dy, axis)
        return dx


class NormalizedBySquare(reductions.LpNormalization):
    """LpNormalization, a quotient, whose derivative has 1 over the square of the norm."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        norm = self.norm(x)
        slope = np.sign(x) if self.p == 1 else x / norm
        along = (dy * x * (1 / (norm * norm))).sum(self.axis, keepdims=True)
        return dy / norm - slope * along


class NaNPassedOver(reductions.Chosen):
    """ReduceMax or ReduceMin of those that are numbers; over NaN alone as over nothing."""

    def reduce(self, x, axes):
        return super().reduce(np.where(np.isnan(x), -self.side * np.inf, x), axes)


@dataclass(frozen=True, kw_only=True, repr=False)
class SumByCount(reductions.ReduceMean):
    """ReduceMean as a sum divided by its number of terms, both in the dtype: either overflows."""

    largest: float

    def reduce(self, x, axes):
        return x.sum(axes, keepdims=True) / self._count(x, axes)

    def gradient(self, dy, x, y, axes):
        return dy / self._count(x, axes)

    def _count(self, x, axes):
        count = prod(x.shape[axis] for axis in axes)
        return float(count) if count <= self.largest else np.inf


class SoftmaxNaNAlone(reductions.Softmax):
    """Softmax that is NaN where its input is, and 0 elsewhere in a row that has a NaN."""

    def forward(self, x):
        spoiled = np.isnan(x).any(self.axis, keepdims=True) & ~np.isnan(x)
        y = super().forward(x)
        return np.where(spoiled, np.zeros_like(y), y)


@dataclass(frozen=True, kw_only=True, repr=False)
class SoftmaxByQuotient(reductions.Softmax):
    """Its gradient is that of the quotient e / s, with the reciprocal of s s in it.

    Where s s overflows, that is zero, and what flows through the sum is lost.
    """

    largest: float

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        e = np.exp(x - x.max(self.axis, keepdims=True))
        s = e.sum(self.axis, keepdims=True)
        reciprocal = np.where(s > np.sqrt(self.largest), np.zeros_like(s), 1 / (s * s))
        return e * (dy / s - (dy * reciprocal * e).sum(self.axis, keepdims=True))


@dataclass(frozen=True, kw_only=True, repr=False)
class NormByQuotient(reductions.ReduceL2):
    """ReduceL2 whose gradient is x / (y / dy), zero where y / dy overflows."""

    largest: float

    def gradient(self, dy, x, y, axes):
        lost = np.abs(y) >= self.largest * np.abs(dy)
        return np.where(lost, np.zeros_like(x), x / (y / dy))


@dataclass(frozen=True, kw_only=True, repr=False)
class LogByReciprocal(reductions.ReduceLogSum):
    """ReduceLogSum whose gradient is dy (1 / s), infinite where 1 / s overflows."""

    largest: float

    def gradient(self, dy, x, y, axes):
        s = x.sum(axes, keepdims=True)
        return np.where(s * self.largest <= 1, np.sign(dy) * np.inf, dy * (1 / s))


FORMULAS: Table = {
    "norm by quotient": {reductions.ReduceL2: NormByQuotient},
    "logarithm by reciprocal": {reductions.ReduceLogSum: LogByReciprocal},
    "nothing at zero": {reductions.CumProd: CumProdFlatAtZero},
    "quotient rule": {reductions.Softmax: SoftmaxByQuotient},
    "shift from zero": {reductions.ReduceLogSumExp: ShiftFromZero},
    "axes from the front only": mixed(
        FromTheFrontOnly,
        reductions.ReduceL1,
        reductions.ReduceL2,
        reductions.ReduceLogSum,
        reductions.ReduceLogSumExp,
        reductions.ReduceMax,
        reductions.ReduceMin,
        reductions.ReduceProd,
        reductions.ReduceSum,
        reductions.ReduceSumSquare,
    ),
    "sum by count": {reductions.ReduceMean: SumByCount},
    "NaN alone": {reductions.Softmax: SoftmaxNaNAlone},
    "NaN passed over": mixed(NaNPassedOver, reductions.ReduceMax, reductions.ReduceMin),
    "even shares": mixed(EvenShares, reductions.ReduceMax, reductions.ReduceMin),
    "quotient by the square": {reductions.LpNormalization: NormalizedBySquare},
    "first of equal": mixed(FirstOfEqual, reductions.ReduceMax, reductions.ReduceMin),
}
