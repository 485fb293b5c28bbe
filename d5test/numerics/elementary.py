"""The one table of primitives: NumPy's ufuncs, their derivatives, and the error they are granted.

It serves the bars, the dual numbers and the noise. A derivative is a function of the arguments and
the result, `f(x, z)` or `f(x, y, z)`. Errors are in ULPs of the result (one ULP is at most 2 u).

Sources: IEEE 754 for the correctly rounded ones, with one rounding more for division and square
root, since x * (1 / y) and x * rsqrt(y) are in common use; for the rest the maximum errors of
single-precision libraries in Gladman, Innocente, Mather and Zimmermann, "Accuracy of Mathematical
Functions in Single, Double, Double Extended, and Quadruple Precision" (2024), rounded up to the
vectorised libraries' documented bound of 4 ULPs (Intel SVML, low accuracy; SLEEF u35 has 3.5).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np
from scipy import special

EXACT, ROUNDED, TWICE_ROUNDED, LIBRARY = 0.0, 0.5, 1.0, 4.0


@dataclass(frozen=True)
class Elementary:
    """One ufunc: a derivative for each argument, and its error in ULPs of the result."""

    derivatives: tuple[Callable[..., Any], ...]
    ulps: float = LIBRARY


TABLE: Mapping[Any, Elementary] = {
    np.positive: Elementary((lambda x, z: 1.0,), EXACT),
    np.negative: Elementary((lambda x, z: -1.0,), EXACT),
    np.absolute: Elementary((lambda x, z: np.sign(x),), EXACT),
    np.add: Elementary((lambda x, y, z: 1.0, lambda x, y, z: 1.0), ROUNDED),
    np.subtract: Elementary((lambda x, y, z: 1.0, lambda x, y, z: -1.0), ROUNDED),
    np.multiply: Elementary((lambda x, y, z: y, lambda x, y, z: x), ROUNDED),
    np.divide: Elementary((lambda x, y, z: 1 / y, lambda x, y, z: -z / y), TWICE_ROUNDED),
    np.reciprocal: Elementary((lambda x, z: -z * z,), TWICE_ROUNDED),
    np.square: Elementary((lambda x, z: 2 * x,), ROUNDED),
    np.sqrt: Elementary((lambda x, z: 0.5 / z,), TWICE_ROUNDED),
    np.exp: Elementary((lambda x, z: z,)),
    np.exp2: Elementary((lambda x, z: z * np.log(2),)),
    np.expm1: Elementary((lambda x, z: z + 1,)),
    np.log: Elementary((lambda x, z: 1 / x,)),
    np.log2: Elementary((lambda x, z: 1 / (x * np.log(2)),)),
    np.log1p: Elementary((lambda x, z: 1 / (1 + x),)),
    np.sin: Elementary((lambda x, z: np.cos(x),)),
    np.cos: Elementary((lambda x, z: -np.sin(x),)),
    np.tan: Elementary((lambda x, z: 1 + z * z,)),
    np.arcsin: Elementary((lambda x, z: 1 / np.sqrt(1 - x * x),)),
    np.arccos: Elementary((lambda x, z: -1 / np.sqrt(1 - x * x),)),
    np.arctan: Elementary((lambda x, z: 1 / (1 + x * x),)),
    np.sinh: Elementary((lambda x, z: np.cosh(x),)),
    np.cosh: Elementary((lambda x, z: np.sinh(x),)),
    np.tanh: Elementary((lambda x, z: 1 - z * z,)),
    np.arcsinh: Elementary((lambda x, z: 1 / np.sqrt(x * x + 1),)),
    np.arccosh: Elementary((lambda x, z: 1 / np.sqrt((x - 1) * (x + 1)),)),
    np.arctanh: Elementary((lambda x, z: 1 / ((1 - x) * (1 + x)),)),
    np.power: Elementary(
        (
            lambda x, y, z: np.where(y == 0, 0.0, y * np.power(x, y - 1)),
            lambda x, y, z: z * np.log(np.where(x > 0, x, 1.0)),
        )
    ),
    special.expit: Elementary((lambda x, z: z * (1 - z),)),
    special.erf: Elementary((lambda x, z: 2 / sqrt(pi) * np.exp(-x * x),)),
    special.erfc: Elementary((lambda x, z: -2 / sqrt(pi) * np.exp(-x * x),)),
}


def no_row(ufunc: Any) -> TypeError:
    """The error for a function that the table lacks."""
    return TypeError(
        f"a reference may not call numpy.{ufunc.__name__}: it has no row in "
        "d5test/numerics/elementary.py; use functions that docs/extending.md lists"
    )


STEPS = frozenset({np.floor, np.ceil, np.rint, np.trunc})
"""Functions that jump: their derivative is zero, their bar what lies in reach of a jump."""

ADDITIONS = frozenset({np.add, np.subtract})
COMPARISONS = frozenset(
    {np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal}
)
LOGIC = frozenset({np.logical_and, np.logical_or, np.logical_not, np.bitwise_and, np.bitwise_or,
                   np.invert})  # fmt: skip
CLASSIFICATIONS = frozenset({np.isnan, np.isinf, np.isfinite, np.signbit})
