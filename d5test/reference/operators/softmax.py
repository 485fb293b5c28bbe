"""Normalised exponentials along one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d5test.case import Batch, Operator

__all__ = ["LogSoftmax", "Softmax"]


@dataclass(frozen=True, kw_only=True, repr=False)
class AlongAxis(Operator):
    """A function of the vectors along `axis`. x, y: any shape but a scalar."""

    axis: int = -1
    since = 13

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        (shape,) = shapes
        if shape is None or len(shape) < 2:
            return None
        free = 1 if self.axis % len(shape) == 0 else 0
        return Batch((free,), (free,))


@dataclass(frozen=True, kw_only=True, repr=False)
class Softmax(AlongAxis):
    """y = e^(x - m) / sum of e^(x - m), m = max of x along `axis`. ONNX Softmax-13."""

    def forward(self, x):
        e = np.exp(x - x.max(self.axis, keepdims=True))
        return e / e.sum(self.axis, keepdims=True)

    def backward(self, grads, inputs, outputs):
        (dy,), (y,) = grads, outputs
        return y * (dy - (dy * y).sum(self.axis, keepdims=True))


@dataclass(frozen=True, kw_only=True, repr=False)
class LogSoftmax(AlongAxis):
    """y = x - m - ln(sum of e^(x - m)), m = max of x along `axis`. ONNX LogSoftmax-13.

    Written as x - (m + ln(sum)), which rounds the larger numbers: a logsumexp is often at hand.
    """

    def forward(self, x):
        m = x.max(self.axis, keepdims=True)
        return x - (m + np.log(np.exp(x - m).sum(self.axis, keepdims=True)))

    def backward(self, grads, inputs, outputs):
        (dy,), (y,) = grads, outputs
        return dy - np.exp(y) * dy.sum(self.axis, keepdims=True)
