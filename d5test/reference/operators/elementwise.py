"""Elementwise functions of one input: y = f(x). A table of formulas, and two with attributes.

A row is a name, the version of ONNX, f(x), its derivative f'(x) as a function of x and y, and the
text of its documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any, ClassVar

import numpy as np
from scipy.special import erf, expit

from d5test.case import Batch, Operator
from d5test.reference.operators.samples import batch_of

__all__ = [
    "Abs",
    "Erf",
    "Exp",
    "Gelu",
    "HardSwish",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Sigmoid",
    "Softplus",
    "Sqrt",
    "Tanh",
]

Formula = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, repr=False)
class Unary(Operator):
    """y = f(x), element by element; dx = dy f'(x). x, y: any shape."""

    function: ClassVar[Formula]
    derivative: ClassVar[Formula]

    def forward(self, x):
        return type(self).function(x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,), (y,) = grads, inputs, outputs
        return dy * type(self).derivative(x, y)

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return batch_of(*shapes)


def unary(name: str, since: int, function: Formula, derivative: Formula, doc: str) -> type[Unary]:
    """The operator of one row."""
    members = {
        "__doc__": f"{doc} ONNX {name}-{since}. x, y: any shape.",
        "__module__": __name__,
        "__qualname__": name,
        "since": since,
        "function": staticmethod(function),
        "derivative": staticmethod(derivative),
    }
    return dataclass(frozen=True, kw_only=True, repr=False)(type(name, (Unary,), members))


def hard_swish_derivative(x, y):
    """The gate, and x times its slope, which is 1 / 6 where it is neither shut nor open."""
    line = x / 6 + 0.5
    return np.clip(line, 0, 1) + np.where((line > 0) & (line < 1), x / 6, 0)


def mish_derivative(x, y):
    """t + x (1 - t^2) / (1 + e^-x) with t = y / x, which is a tanh."""
    t = np.tanh(np.log(np.exp(x) + 1))
    return t + x * (1 - t * t) / (1 + np.exp(-x))


# fmt: off
Abs = unary("Abs", 13, np.abs, lambda x, y: np.sign(x), "y = |x|.")
Erf = unary("Erf", 13, erf, lambda x, y: 2 / sqrt(pi) * np.exp(-x * x),
            "The error function, y = 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.")
Exp = unary("Exp", 13, np.exp, lambda x, y: y, "y = e^x.")
HardSwish = unary("HardSwish", 22, lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
                  hard_swish_derivative,
                  "y = x max(0, min(1, x / 6 + 1 / 2)). Howard et al., arXiv 1905.02244, 5.2.")
Log = unary("Log", 13, np.log, lambda x, y: 1 / x, "The natural logarithm, y = ln x.")
Mish = unary("Mish", 22, lambda x: x * np.tanh(np.log(np.exp(x) + 1)), mish_derivative,
             "y = x tanh(ln(1 + e^x)). Misra, arXiv 1908.08681, equation 1.")
Neg = unary("Neg", 13, lambda x: -x, lambda x, y: -1.0, "y = -x.")
Reciprocal = unary("Reciprocal", 13, lambda x: 1 / x, lambda x, y: -y * y, "y = 1 / x.")
Relu = unary("Relu", 14, lambda x: np.maximum(x, 0), lambda x, y: x > 0, "y = max(x, 0).")
Sigmoid = unary("Sigmoid", 13, expit, lambda x, y: y * (1 - y),
                "The logistic function, y = 1 / (1 + e^-x).")
Softplus = unary("Softplus", 22, lambda x: np.log(np.exp(x) + 1),
                 lambda x, y: 1 / (1 + np.exp(-x)),
                 "y = ln(e^x + 1), as ONNX's function body has it.")
Sqrt = unary("Sqrt", 13, np.sqrt, lambda x, y: 0.5 / y, "y = sqrt(x).")
Tanh = unary("Tanh", 13, np.tanh, lambda x, y: 1 - y * y, "The hyperbolic tangent, y = tanh(x).")
# fmt: on


@dataclass(frozen=True, kw_only=True, repr=False)
class LeakyRelu(Unary):
    """y = x where x >= 0, alpha x elsewhere. ONNX LeakyRelu-16. x, y: any shape."""

    alpha: float = float(np.float32(0.01))  # what ONNX stores: a FLOAT is a float32
    since = 16

    def forward(self, x):
        return np.where(x < 0, self.alpha * x, x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return np.where(x < 0, self.alpha * dy, dy)


@dataclass(frozen=True, kw_only=True, repr=False)
class Gelu(Unary):
    """The Gaussian error linear unit, x times the normal distribution function. ONNX Gelu-20.

    approximate="none": y = x (1 + erf(x / sqrt(2))) / 2
    approximate="tanh": y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2

    Hendrycks and Gimpel, arXiv 1606.08415, section 2. x, y: any shape.
    """

    approximate: str = "none"
    since = 20

    def forward(self, x):
        if self.approximate == "tanh":
            return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))
        return 0.5 * x * (1 + erf(x / sqrt(2)))

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        if self.approximate == "tanh":
            t = np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))
            dt = (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x)
            return dy * (0.5 * (1 + t) + 0.5 * x * dt)
        density = np.exp(-0.5 * x * x) / sqrt(2 * pi)
        return dy * (0.5 * (1 + erf(x / sqrt(2))) + x * density)
