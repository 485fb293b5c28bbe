"""Activations with attributes or a slope: linear on one side, bent or cut on the other.

Where ONNX has a function body, the formulas are its. The derivative of an exponential is written
by the output, sign and all, since frameworks keep that and not the input: in 16 bits it may be
zero where the input is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.broadcasting import unbroadcast
from d5test.reference.operators.elementwise import Unary
from d5test.reference.operators.samples import batch_of

__all__ = [
    "Celu",
    "Elu",
    "HardSigmoid",
    "PRelu",
    "Selu",
    "ThresholdedRelu",
]

# What ONNX stores: a FLOAT is a float32.
SELU_ALPHA = float(np.float32(1.6732632423543772))
SELU_GAMMA = float(np.float32(1.0507009873554805))
FIFTH, SIXTH = float(np.float32(0.2)), float(np.float32(1 / 6))


def elu(x, alpha):
    """alpha (e^x - 1) where x < 0, x elsewhere."""
    return np.where(x < 0, alpha * (np.exp(x) - 1), x)


@dataclass(frozen=True, kw_only=True, repr=False)
class Elu(Unary):
    """y = alpha (e^x - 1) where x < 0, x elsewhere. ONNX Elu-22. x, y: any shape.

    Clevert, Unterthiner and Hochreiter, arXiv 1511.07289, equation 15.
    """

    alpha: float = 1.0
    since = 22

    def forward(self, x):
        return elu(x, self.alpha)

    def backward(self, grads, inputs, outputs):
        (dy,), (y,) = grads, outputs
        return dy * np.where(y < 0, y + self.alpha, 1.0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Selu(Unary):
    """y = gamma (alpha e^x - alpha) where x < 0, gamma x elsewhere. ONNX Selu-22.

    x, y: any shape. Klambauer et al., arXiv 1706.02515, equation 2.
    """

    alpha: float = SELU_ALPHA
    gamma: float = SELU_GAMMA
    since = 22

    def forward(self, x):
        return np.where(x < 0, self.gamma * (self.alpha * np.exp(x) - self.alpha), self.gamma * x)

    def backward(self, grads, inputs, outputs):
        (dy,), (y,) = grads, outputs
        return dy * np.where(y < 0, y + self.gamma * self.alpha, self.gamma)


@dataclass(frozen=True, kw_only=True, repr=False)
class Celu(Unary):
    """y = alpha (e^(x / alpha) - 1) where x < 0, x elsewhere. ONNX Celu-12. x, y: any shape.

    Barron, arXiv 1704.07483, equation 2.
    """

    alpha: float = 1.0
    since = 12

    def forward(self, x):
        return self.alpha * elu(x / self.alpha, 1.0)

    def backward(self, grads, inputs, outputs):
        (dy,), (y,) = grads, outputs
        return dy * np.where(y < 0, y / self.alpha + 1, 1.0)


@dataclass(frozen=True, kw_only=True, repr=False)
class HardSigmoid(Unary):
    """y = max(0, min(1, alpha x + beta)). ONNX HardSigmoid-22. x, y: any shape."""

    alpha: float = FIFTH
    beta: float = 0.5
    since = 22

    def forward(self, x):
        return np.clip(self.alpha * x + self.beta, 0, 1)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        line = self.alpha * x + self.beta
        return np.where((line > 0) & (line < 1), self.alpha * dy, 0)


@dataclass(frozen=True, kw_only=True, repr=False)
class ThresholdedRelu(Unary):
    """y = x where x > alpha, 0 elsewhere. ONNX ThresholdedRelu-22. x, y: any shape.

    Konda, Memisevic and Krueger, arXiv 1402.3337, equation 9.
    """

    alpha: float = 1.0
    since = 22

    def forward(self, x):
        return np.where(x <= self.alpha, 0, x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return np.where(x <= self.alpha, 0, dy)


@dataclass(frozen=True, kw_only=True, repr=False)
class PRelu(Operator):
    """y = x where x >= 0, slope x elsewhere. ONNX PRelu-16.

    x, y: any shape; slope: a shape that broadcasts to x's.
    He et al., arXiv 1502.01852, equation 1.
    """

    since = 16

    def forward(self, x, slope):
        return np.where(x < 0, slope * x, x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, slope) = grads, inputs
        dx = np.where(x < 0, slope * dy, dy)
        return dx, unbroadcast(np.where(x < 0, x * dy, 0), slope.shape)

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return batch_of(*shapes)
