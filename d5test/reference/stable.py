"""The elementary functions in forms that neither cancel nor overflow on the way.

What a framework's error in ULPs is measured against. The operators' own `forward` is ONNX's
formula, which in float64 has lost all digits of softplus(-40), and overflows for sigmoid(-800).
Each form here is one function of NumPy or SciPy and products around it: wherever the result is a
normal number it is off by what a primitive is granted times its `condition`, in ULPs of float64
(tests/reference/test_stable.py asks mpmath).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr

from d5test.case import Array, Operator
from d5test.reference.operators import activations as bent
from d5test.reference.operators import elementwise as ops

Form = Callable[[Any, Array], Array]


def _tail(op: ops.Gelu, x: Array) -> Array:
    """t, where the factor of x is e^-t, or with `tanh` 1 / (1 + e^t)."""
    if op.approximate == "tanh":
        return np.asarray(-2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x))
    return np.asarray(-log_ndtr(x))


def _gelu(op: ops.Gelu, x: Array) -> Array:
    t = _tail(op, x)
    return x * (expit(-t) if op.approximate == "tanh" else np.exp(-t))


def _elu(alpha: float, x: Array) -> Array:
    return np.where(x < 0, alpha * np.expm1(x), x)


def _hard_sigmoid(op: bent.HardSigmoid, x: Array) -> Array:
    """Both parts of x have an exact product with alpha, of 24 bits: what cancels is exact."""
    high = (x.view(np.int64) & -(1 << 24)).view(np.float64)
    return np.clip((op.alpha * high + op.beta) + op.alpha * (x - high), 0, 1)


def _mish(op: Operator, x: Array) -> Array:
    """x w / (w + 2) with w = e^x (e^x + 2), both sides divided by e^2x where x > 0.

    A small e^x is multiplied by its root twice: x e^x may be normal where e^x is not.
    """
    e, root = np.exp(-np.abs(x)), np.exp(np.minimum(x, 0) / 2)
    above = (1 + 2 * e) / (1 + 2 * e + 2 * e * e)
    below = (2 + e) / (2 + 2 * e + e * e)
    return np.asarray(x * root * np.where(x > 0, above, below) * root)


FORMS: Mapping[type[Operator], Form] = MappingProxyType(
    {
        bent.Celu: lambda op, x: np.where(x < 0, op.alpha * np.expm1(x / op.alpha), x),
        bent.Elu: lambda op, x: _elu(op.alpha, x),
        bent.HardSigmoid: _hard_sigmoid,
        bent.Selu: lambda op, x: op.gamma * _elu(op.alpha, x),
        ops.Gelu: _gelu,
        ops.HardSwish: lambda op, x: x * (np.clip(x + 3, 0, 6) / 6),
        ops.Mish: _mish,
        ops.Sigmoid: lambda op, x: expit(x),
        ops.Softplus: lambda op, x: np.logaddexp(0.0, x),
    }
)
"""Those whose `forward` is not such a form itself."""


def stable(op: Operator, x: Array) -> Array:
    """y = f(x) in float64, of the same shape."""
    form = FORMS.get(type(op))
    with np.errstate(all="ignore"):
        if form is not None:
            return form(op, x)
        (y,) = op(x)
    return np.asarray(y)


def condition(op: Operator, x: Array) -> Array:
    """By how much `stable` multiplies the error of one primitive, at least 1.

    An exponential multiplies the relative error of its argument by the argument.
    """
    factor = np.ones(x.shape)
    if isinstance(op, ops.Gelu):
        with np.errstate(all="ignore"):
            factor += np.maximum(_tail(op, x), 0.0)
    return factor
