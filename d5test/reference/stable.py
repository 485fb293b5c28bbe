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


FORMS: Mapping[type[Operator], Form] = MappingProxyType(
    {
        ops.Gelu: _gelu,
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
