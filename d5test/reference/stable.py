"""The elementary functions in forms that neither cancel nor overflow on the way.

What a framework's error in ULPs is measured against, and by what it is graded. The operators' own
`forward` is ONNX's formula, which in float64 has lost all digits of softplus(-40), and overflows
for sigmoid(-800). A form here is written in the table's primitives, so that it may run on bars.
Wherever the result is a normal number it is off by what a primitive is granted times its
`condition`, in ULPs of float64 (tests/reference/test_stable.py asks mpmath).
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import pi, sqrt
from typing import Any

import numpy as np
from scipy.special import erfc, log_ndtr

from d5test.case import Array, Operator
from d5test.reference.operators import elementwise as ops

Form = Callable[[Any, Any], Any]

SATURATED = 30.0
"""Beyond it, the factor of x in Gelu's tanh form is 0 or 1, in float64 too: e^-1974 is 0."""


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1 + e)


def _vanishing(x: Any, y: Any) -> Any:
    """y, and 0 at minus infinity, its limit there: as a product, y is infinity times nothing."""
    return np.where(x == -np.inf, 0.0, y)


def _gelu(op: ops.Gelu, x: Any) -> Any:
    if op.approximate == "tanh":
        return _vanishing(x, x * _sigmoid(_inner(x)))
    return _vanishing(x, x * (0.5 * erfc(-x / sqrt(2))))


def _inner(x: Any) -> Any:
    """u, where Gelu's tanh form is x / (1 + e^-u)."""
    x = np.clip(x, -SATURATED, SATURATED)
    return (x + 0.044715 * x * x * x) / sqrt(pi / 8)


def _elu(alpha: float, x: Any) -> Any:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _hard_sigmoid(op: ops.HardSigmoid, x: Any) -> Any:
    """alpha (x - x0) has no sum that cancels with an error in it: x0 comes in parts.

    As an array, x0 is exact to bars.
    """
    alpha, beta = Fraction(op.alpha), Fraction(op.beta)
    x0 = np.asarray(float(-beta / alpha))
    rest = float(-beta / alpha - Fraction(float(x0)))
    return np.clip(op.alpha * (x - x0 - rest), 0, 1)


def _mish(op: Operator, x: Any) -> Any:
    """x w / (w + 2) with w = e^x (e^x + 2), both sides divided by e^2x where x > 0.

    A small e^x is multiplied by its root twice: x e^x may be normal where e^x is not.
    """
    e, root = np.exp(-np.abs(x)), np.exp(np.minimum(x, 0) / 2)
    above = (1 + 2 * e) / (1 + 2 * e + 2 * e * e)
    below = (2 + e) / (2 + 2 * e + e * e)
    return _vanishing(x, x * root * np.where(x > 0, above, below) * root)


def _swish(op: ops.Swish, x: Any) -> Any:
    """x / (1 + e^-z), where a small e^z is multiplied by its root twice, as in Mish."""
    z = op.alpha * x
    root = np.exp(np.minimum(z, 0) / 2)
    return _vanishing(z, x * root / (1 + np.exp(-np.abs(z))) * root)


FORMS: Mapping[type[Operator], Form] = {
    ops.Celu: lambda op, x: np.where(x < 0, op.alpha * np.expm1(np.minimum(x, 0) / op.alpha), x),
    ops.Elu: lambda op, x: _elu(op.alpha, x),
    ops.HardSigmoid: _hard_sigmoid,
    ops.Selu: lambda op, x: op.gamma * _elu(op.alpha, x),
    ops.Gelu: _gelu,
    ops.HardSwish: lambda op, x: _vanishing(x, x * (np.clip(x + 3, 0, 6) / 6)),
    ops.Mish: _mish,
    ops.Sigmoid: lambda op, x: _sigmoid(x),
    ops.Swish: _swish,
    ops.Softplus: lambda op, x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
}
"""Those whose `forward` is not such a form itself."""


CORRECTLY_ROUNDED: frozenset[type[Operator]] = frozenset(
    {ops.Add, ops.Div, ops.Mul, ops.Sub, ops.Reciprocal, ops.Sqrt}
)
"""One operation of IEEE 754-2019, 5.4.1: in float64 `stable` is the nearest number."""


def stable(op: Operator, *xs: Array) -> Array:
    """y = f(x, ...) in float64, of the shape that all have."""
    form = FORMS.get(type(op))
    with np.errstate(all="ignore"):
        if form is not None:
            return np.asarray(form(op, *xs))
        (y,) = op(*xs)
    return np.asarray(y)


def condition(op: Operator, x: Array, *_: Array) -> Array:
    """By how much `stable` multiplies the error of one primitive, at least 1.

    An exponential e^-t, which Gelu's factor of x is, multiplies the relative error of t by t.
    """
    factor = np.ones(x.shape)
    if isinstance(op, ops.Gelu):
        with np.errstate(all="ignore"):
            t = -_inner(x) if op.approximate == "tanh" else -log_ndtr(x)
            factor += np.maximum(t, 0.0)
    return factor
