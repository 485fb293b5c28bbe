"""The stable forms against mpmath: off by no more than what is taken off the errors of others.

So what is measured against them is good to 2^-16 ULPs of float32.
"""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from d5test.case import Operator
from d5test.checks.accuracy import own_error, spacing
from d5test.numerics.arithmetic import format_of
from d5test.problems.functions import VARIANTS, function_cases
from d5test.reference.operators import OPERATORS
from d5test.reference.operators.elementwise import Gelu, HardSigmoid, Unary
from d5test.reference.stable import stable

DOUBLE = format_of("float64")
DIGITS = 40
STRIDES = {"float16": 5, "float32": 61, "float64": 61}
"""Of the numbers of the fixed cases, every which is compared: mpmath takes its time."""


def gelu(x: Any) -> Any:
    return x * mp.ncdf(x)


def gelu_tanh(x: Any) -> Any:
    inner = mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3)
    return x / (1 + mp.exp(-2 * inner))


def elu(x: Any) -> Any:
    return mp.expm1(x) if x < 0 else x


def selu(x: Any) -> Any:
    op = OPERATORS["Selu"]()
    alpha, gamma = (mp.mpf(op.attributes[name]) for name in ("alpha", "gamma"))
    return gamma * (alpha * mp.expm1(x) if x < 0 else x)


def clipped(x: Any) -> Any:
    return min(max(x, mp.mpf(0)), mp.mpf(1))


TRUTHS: dict[str, Callable[[Any], Any]] = {
    "Abs": abs,
    "Celu": elu,
    "Elu": elu,
    "Erf": mp.erf,
    "Exp": mp.exp,
    "HardSwish": lambda x: x * clipped(x / 6 + mp.mpf(0.5)),
    "LeakyRelu": lambda x: x * mp.mpf(OPERATORS["LeakyRelu"]().alpha) if x < 0 else x,
    "Log": mp.log,
    "Mish": lambda x: x * mp.tanh(mp.log1p(mp.exp(x))),
    "Neg": lambda x: -x,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: max(x, mp.mpf(0)),
    "Selu": selu,
    "Sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "Softplus": lambda x: mp.log1p(mp.exp(x)),
    "Sqrt": mp.sqrt,
    "Tanh": mp.tanh,
    **{
        name: getattr(mp, name.lower())
        for name in "Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh".split()
    },
    "Ceil": mp.ceil,
    "Floor": mp.floor,
    "Identity": lambda x: x,
    "Round": mp.nint,
    "Sign": mp.sign,
    "Shrink": lambda x: x if abs(x) > 0.5 else mp.mpf(0),
    "Softsign": lambda x: x / (1 + abs(x)),
    "Swish": lambda x: x / (1 + mp.exp(-x)),
    "ThresholdedRelu": lambda x: x if x > 1 else mp.mpf(0),
}
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Pow": lambda x, y: mp.re(mp.power(x, y)),
}
FUNCTIONS = [op for cls in OPERATORS.values() if issubclass(cls, Unary) or cls.__name__ in PAIRS
             for op in VARIANTS.get(cls, (cls(),))]  # fmt: skip


def truth(op: Operator) -> Callable[[Any], Any]:
    if isinstance(op, Gelu):
        return gelu_tanh if op.approximate == "tanh" else gelu
    if isinstance(op, HardSigmoid):
        return lambda x: clipped(mp.mpf(op.alpha) * x + mp.mpf(op.beta))
    return PAIRS.get(op.name) or TRUTHS[op.name]


@pytest.mark.parametrize("dtype", STRIDES)
@pytest.mark.parametrize("op", FUNCTIONS, ids=repr)
def test_within_the_ulps_of_its_library(op: Operator, dtype: str) -> None:
    xs = inputs(op, dtype)
    y = stable(op, *xs)
    normal = np.isfinite(y) & (np.abs(y) >= DOUBLE.smallest_normal)
    xs, y = tuple(x[normal] for x in xs), y[normal]
    assert y.size > 200
    function, errors = truth(op), np.zeros(y.size)
    with mp.workdps(DIGITS):
        ulps = spacing(y, DOUBLE)
        for i, (*given, found) in enumerate(zip(*(x.tolist() for x in (*xs, y)), strict=True)):
            exact = function(*map(mp.mpf, given))
            errors[i] = float(abs(exact - mp.mpf(found)) / mp.mpf(ulps[i]))
    allowed = own_error(op, xs)
    worst = int((errors / allowed).argmax())
    assert errors[worst] <= allowed[worst], ([x[worst] for x in xs], y[worst])
    assert allowed.max() < 2 ** (53 - 24 - 16)


def inputs(op: Operator, dtype: str) -> tuple[Any, ...]:
    """Finite inputs of the fixed cases, in float64."""
    cases = (case.arrays() for case in function_cases(type(op), dtype) if case.op == op)
    with np.errstate(invalid="ignore"):
        xs = [
            np.concatenate(given).astype(np.float64)[:: STRIDES[dtype]]
            for given in zip(*cases, strict=True)
        ]
    finite = np.all(np.isfinite(xs), axis=0)
    return tuple(x[finite] for x in xs)


# fmt: off
POWERS = (
    # x, y, x^y: C23, F.10.4.4
    (-0.0, -3.0, -inf), (0.0, -3.0, inf), (-0.0, -inf, inf), (0.0, -inf, inf),
    (-0.0, -2.0, inf), (0.0, -0.5, inf), (-0.0, -2.5, inf),
    (-0.0, 3.0, -0.0), (0.0, 3.0, 0.0), (-0.0, 2.0, 0.0), (-0.0, 2.5, 0.0),
    (-1.0, inf, 1.0), (-1.0, -inf, 1.0), (1.0, nan, 1.0), (1.0, inf, 1.0),
    (nan, 0.0, 1.0), (nan, -0.0, 1.0), (inf, 0.0, 1.0), (0.0, 0.0, 1.0), (-0.0, -0.0, 1.0),
    (-2.0, 0.5, nan), (-1.5, -2.5, nan), (nan, 1.0, nan), (2.0, nan, nan),
    (0.5, -inf, inf), (-0.5, -inf, inf), (2.0, -inf, 0.0), (-2.0, -inf, 0.0),
    (0.5, inf, 0.0), (-0.5, inf, 0.0), (2.0, inf, inf), (-2.0, inf, inf),
    (-inf, -3.0, -0.0), (-inf, -2.5, 0.0), (-inf, 3.0, -inf), (-inf, 2.0, inf),
    (inf, -1.0, 0.0), (inf, 0.5, inf),
    # of a negative number the odd powers are negative, up to the largest odd number
    (-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (-2.0, -3.0, -0.125),
    (-1.0, 2.0**53 - 1, -1.0), (-1.0, 2.0**53, 1.0),
)
# fmt: on


@pytest.mark.parametrize(("x", "y", "z"), POWERS)
def test_powers_of_special_numbers(x: float, y: float, z: float) -> None:
    found = stable(OPERATORS["Pow"](), np.full(9, x), np.full(9, y))
    expected = np.full(9, z)
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.isnan(z) or np.array_equal(np.signbit(found), np.signbit(expected))
