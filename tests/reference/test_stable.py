"""The stable forms against mpmath: off by no more than what is taken off the errors of others.

So what is measured against them is good to 2^-16 ULPs of float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from d5test.case import Operator
from d5test.numerics.arithmetic import format_of
from d5test.numerics.elementary import LIBRARY
from d5test.numerics.ulps import spacing
from d5test.problems.functions import VARIANTS, function_cases
from d5test.reference.operators import OPERATORS
from d5test.reference.operators.activations import HardSigmoid
from d5test.reference.operators.elementwise import Gelu, Unary
from d5test.reference.stable import condition, stable

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
    "ThresholdedRelu": lambda x: x if x > 1 else mp.mpf(0),
}
FUNCTIONS = [op for cls in OPERATORS.values() if issubclass(cls, Unary)
             for op in VARIANTS.get(cls, (cls(),))]  # fmt: skip


def truth(op: Operator) -> Callable[[Any], Any]:
    if isinstance(op, Gelu):
        return gelu_tanh if op.approximate == "tanh" else gelu
    if isinstance(op, HardSigmoid):
        return lambda x: clipped(mp.mpf(op.alpha) * x + mp.mpf(op.beta))
    return TRUTHS[op.name]


@pytest.mark.parametrize("dtype", STRIDES)
@pytest.mark.parametrize("op", FUNCTIONS, ids=repr)
def test_within_the_ulps_of_its_library(op: Operator, dtype: str) -> None:
    x = inputs(op, dtype)
    y = stable(op, x)
    normal = np.isfinite(y) & (np.abs(y) >= DOUBLE.smallest_normal)
    x, y = x[normal], y[normal]
    assert x.size > 200
    function, errors = truth(op), np.zeros(x.size)
    with mp.workdps(DIGITS):
        ulps = spacing(y, DOUBLE)
        for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
            errors[i] = float(abs(function(mp.mpf(a)) - mp.mpf(b)) / mp.mpf(ulps[i]))
    allowed = LIBRARY * condition(op, x)
    worst = int((errors / allowed).argmax())
    assert errors[worst] <= allowed[worst], (x[worst], y[worst])
    assert allowed.max() < 2 ** (53 - 24 - 16)


def inputs(op: Operator, dtype: str) -> Any:
    """Finite inputs of the fixed cases, in float64."""
    tensors = (case.arrays()[0] for case in function_cases(type(op), dtype) if case.op == op)
    with np.errstate(invalid="ignore"):
        x = np.concatenate([np.asarray(t).astype(np.float64) for t in tensors])[:: STRIDES[dtype]]
    return x[np.isfinite(x)]
