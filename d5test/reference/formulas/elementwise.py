"""Elementwise operators: other slopes at corners, and other orders of the same factors."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import erf, expit

from d5test.reference.formulas.table import Table, mixed
from d5test.reference.operators import elementwise
from d5test.reference.operators.broadcasting import plain, unbroadcast


class SlopeByDifference(elementwise.Softplus):  # type: ignore[misc]
    """Softplus, y = max(x, 0) + ln(1 + e^-|x|), whose derivative is computed as exp(x - y).

    The rounding of y is an absolute error of the exponent.
    """

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        y = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        return dy * np.exp(x - y)


class ReciprocalOfSquare(elementwise.Reciprocal):  # type: ignore[misc]
    """1 / x, whose derivative is computed as -1 / (x x): the square leaves the range before it."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return -dy * (1 / (x * x))


class QuotientBySquare(elementwise.Div):  # type: ignore[misc]
    """Div, whose derivative is computed as -a / (b b): the square leaves the range before it."""

    def backward(self, grads, inputs, outputs):
        (dy,), (a, b) = grads, inputs
        da, db = dy / b, -dy * a * (1 / (b * b))
        return unbroadcast(da, a.shape), unbroadcast(db, b.shape)


class SwishProductFirst(elementwise.Swish):
    """Swish whose derivative has dy x multiplied by a slope that vanishes: infinity times zero."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        s = expit(self.alpha * x)
        return dy * s + dy * x * (self.alpha * s * (1 - s))


class HardSwishProductBeforeQuotient(elementwise.HardSwish):  # type: ignore[misc]
    """HardSwish as (x clip(x + 3, 0, 6)) / 6, which overflows where 6 x does."""

    def forward(self, x):
        return x * np.clip(x + 3, 0, 6) / 6


class HardSwishByFloat32Sixth(elementwise.HardSwish):  # type: ignore[misc]
    """HardSwish with the factor 1 / 6 of float32 in any dtype, after the product."""

    def forward(self, x):
        return x * np.clip(x + 3, 0, 6) * float(np.float32(1 / 6))


class CeluTwiceAtZero(elementwise.Celu):
    """Celu as max(x, 0) + alpha (e^(min(x, 0) / alpha) - 1): zero is both functions' own.

    There the gradient is twice as large as it should be.
    """

    def backward(self, grads, inputs, outputs):
        (x,) = inputs
        return super().backward(grads, inputs, outputs) * np.where(x == 0, 2.0, 1.0)


class PReluFlatAtZero(elementwise.PRelu):
    """PRelu as max(x, 0) - slope max(-x, 0): at zero neither has a gradient."""

    def backward(self, grads, inputs, outputs):
        dx, dslope = super().backward(grads, inputs, outputs)
        return dx * np.where(inputs[0] == 0, 0.0, 1.0), dslope


class GeluProductBeforeQuotient(elementwise.Gelu):
    """Gelu as (x (1 + erf(x / sqrt(2)))) / 2, which overflows where 2 x does; of infinity NaN."""

    def forward(self, x):
        return np.where(np.abs(x) == np.inf, np.nan, x * (1 + erf(x / sqrt(2))) / 2)


class HalfAwayFromZero(elementwise.Round):  # type: ignore[misc]
    """The nearest whole number, of two the one farther from zero."""

    def forward(self, x):
        half = plain(x) - np.floor(plain(x)) == 0.5
        return np.where(half, np.where(x > 0, np.ceil(x), np.floor(x)), np.rint(x))


class LinearAbove2(elementwise.Softplus):  # type: ignore[misc]
    """Softplus that is x itself above 2."""

    def forward(self, x):
        return np.where(x > 2, x, np.log(1 + np.exp(x)))

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return (dy * np.where(x > 2, 1.0, 1 / (1 + np.exp(-x))),)


class Interpolated:
    """The larger or smaller of two, whose tangent is b + (a is taken) * (a - b).

    Of the tangent b that is not taken a rounding error stays; an infinite one makes NaN.
    """

    def linearised(self, *xs):
        y, *rest = xs
        for x in rest:
            y = x + ~type(self).beaten(y, x) * (y - x)
        return y


class SeluInDouble(elementwise.Selu):
    """Selu with the constants of the paper (appendix A1), which ONNX rounds to 32 bits."""

    paper = elementwise.Selu(alpha=1.6732632423543772, gamma=1.0507009873554805)

    def forward(self, x):
        return self.paper.forward(x)

    def backward(self, grads, inputs, outputs):
        return self.paper.backward(grads, inputs, outputs)


class HardSigmoidOfSixths(elementwise.HardSigmoid):
    """HardSigmoid as relu6(x + 3) / 6, which has no alpha that is rounded to 32 bits."""

    def forward(self, x):
        return np.clip(x + 3, 0, 6) / 6

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return np.where((x > -3) & (x < 3), dy / 6, 0)


@dataclass(frozen=True, kw_only=True, repr=False)
class ExponentialFirst(elementwise.Unary):
    """A hyperbolic function as half of a sum of exponentials, infinite where one of them is."""

    largest: float

    def forward(self, x):
        y = super().forward(x)
        return np.where(np.abs(x) > np.log(self.largest), np.sign(y) * np.inf, y)


class AsinhByResult:
    """The slope as a function of the result as it is stored, not of x."""

    derivative = staticmethod(lambda x, y: 1 / np.cosh(y))


class AcoshByResult:
    """The slope as a function of the result as it is stored, not of x."""

    derivative = staticmethod(lambda x, y: 1 / np.sinh(y))


FORMULAS: Table = {
    "slope by difference": {elementwise.Softplus: SlopeByDifference},
    "reciprocal of the square": {elementwise.Reciprocal: ReciprocalOfSquare},
    "quotient by the square": {elementwise.Div: QuotientBySquare},
    "product with x first": {elementwise.Swish: SwishProductFirst},
    "product before quotient": {
        elementwise.Gelu: GeluProductBeforeQuotient,
        elementwise.HardSwish: HardSwishProductBeforeQuotient,
    },
    "a sixth of float32": {elementwise.HardSwish: HardSwishByFloat32Sixth},
    "both sides at zero": {elementwise.Celu: CeluTwiceAtZero},
    "neither side at zero": {elementwise.PRelu: PReluFlatAtZero},
    "exponential before half": mixed(ExponentialFirst, elementwise.Cosh, elementwise.Sinh),
    "interpolated tangents": mixed(Interpolated, elementwise.Max, elementwise.Min),
    "slope of the rounded result": {
        **mixed(AsinhByResult, elementwise.Asinh),
        **mixed(AcoshByResult, elementwise.Acosh),
    },
    "half away from zero": {elementwise.Round: HalfAwayFromZero},
    "linear above 2": {elementwise.Softplus: LinearAbove2},
    "constants in 64 bits": {
        elementwise.Selu: SeluInDouble,
        elementwise.HardSigmoid: HardSigmoidOfSixths,
    },
}
