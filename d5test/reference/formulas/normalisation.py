"""Local response, group and batch normalisation."""

from math import prod

import numpy as np

from d5test.reference.formulas.table import Table
from d5test.reference.operators import normalisation


class RunningSums(normalisation.LRN):
    """LRN whose sum over channels is that of the channel before, plus one square, minus another.

    What a large channel left behind in rounding stays when its window is over; so does a NaN.
    """

    def divisor(self, x):
        c, before = x.shape[1], (self.size - 1) // 2
        around = (before, self.size - 1 - before)
        rest = ((0, 0) for _ in x.shape[2:])
        squares = self.alpha / self.size * np.pad(x * x, [(0, 0), around, *rest])
        divisors = [self.bias + squares[:, : self.size].sum(1)]
        for i in range(c - 1):
            divisors.append(divisors[-1] + squares[:, i + self.size] - squares[:, i])
        return np.stack(divisors, 1)


class BandMatrix(normalisation.LRN):
    """LRN whose sum over channels is a product with a matrix of ones and zeros: 0 NaN is NaN."""

    def divisor(self, x):
        i = np.arange(x.shape[1])
        before = (self.size - 1) // 2
        apart = i[:, None] - i
        band = ((apart >= -before) & (apart < self.size - before)).astype(np.float64)
        squares = np.moveaxis(x * x, 1, -1) @ band
        return self.bias + self.alpha / self.size * np.moveaxis(squares, -1, 1)


class CentredVariance(normalisation.GroupNormalization):
    """GroupNormalization whose variance is mean((x - mean)^2), which does not cancel."""

    def variance(self, groups, mean):
        centred = groups - mean
        return (centred * centred).mean(2, keepdims=True)


class VarianceBySquares(normalisation.GroupNormalization):
    """GroupNormalization whose variance is mean(x^2) - mean(x)^2, where another one is due."""


class UnbiasedRunningVariance(normalisation.BatchNormalization):
    """BatchNormalization whose running variance is of the sample: divided by its size less 1."""

    def forward(self, x, scale, b, input_mean, input_var):
        if not self.training_mode:
            return super().forward(x, scale, b, input_mean, input_var)
        y, mean, _ = super().forward(x, scale, b, input_mean, input_var)
        axes = self.reduced(x.ndim)
        count = prod(x.shape[axis] for axis in axes)
        variance = x.var(axes) * (count / max(count - 1, 1))
        return y, mean, self.momentum * input_var + (1 - self.momentum) * variance


FORMULAS: Table = {
    "running sums": {normalisation.LRN: RunningSums},
    "band matrix": {normalisation.LRN: BandMatrix},
    "centred variance": {normalisation.GroupNormalization: CentredVariance},
    "variance by squares": {normalisation.GroupNormalization: VarianceBySquares},
    "unbiased running variance": {normalisation.BatchNormalization: UnbiasedRunningVariance},
}
