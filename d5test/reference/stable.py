"""The elementary functions in forms that neither cancel nor overflow on the way.

What a framework's error in ULPs is measured against. The operators' own `forward` is ONNX's
formula, which in float64 has lost all digits of softplus(-40), and overflows for sigmoid(-800).
Each form here is one function of NumPy or SciPy and exact scalings around it: within a few ULPs of
float64 wherever the result is a normal number (tests/reference/test_stable.py, by mpmath).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from d5test.case import Array, Operator
from d5test.reference.operators import elementwise as ops

Form = Callable[[Any, Array], Array]


def _gelu(op: ops.Gelu, x: Array) -> Array:
    if op.approximate == "tanh":
        return x * expit(2 * sqrt(2 / pi) * (x + 0.044715 * x * x * x))
    return x * ndtr(x)


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
