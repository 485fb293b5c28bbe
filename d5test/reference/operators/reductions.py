"""Reductions over some or all axes, and partial sums along one.

The axes are an input of int64, not an attribute; without them (absent, or empty) all axes are
reduced, or none with `noop_with_empty_axes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from d5test.case import Operator

__all__ = ["CumSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceSum"]

LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True, kw_only=True, repr=False)
class Reduction(Operator):
    """y = the reduction of x over `axes`. x: any shape; axes: (k,) in int64, or absent.

    y: x's shape with the reduced dimensions 1, or without them if `keepdims` is 0.
    """

    keepdims: int = 1
    noop_with_empty_axes: int = 0

    def reduce(self, x, axes):
        """The reduction, its dimensions kept."""
        raise NotImplementedError

    def gradient(self, dy, x, y, axes):
        """dx, from dy and y with their dimensions kept; it may still have to be broadcast."""
        raise NotImplementedError

    def reduced(self, x, axes):
        """The axes to reduce, counted from the front; none: y is x."""
        if axes is None or axes.size == 0:
            return () if self.noop_with_empty_axes else tuple(range(x.ndim))
        return tuple(int(axis) % x.ndim for axis in axes)

    def forward(self, x, axes=None):
        axes = self.reduced(x, axes)
        if not axes:
            return x.copy()
        y = self.reduce(x, axes)
        return y if self.keepdims else y.squeeze(axes)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *axes), (y,) = grads, inputs, outputs
        over = self.reduced(x, *axes or [None])
        if not over:
            return dy, *(None for _ in axes)
        kept = tuple(1 if axis in over else size for axis, size in enumerate(x.shape))
        dx = self.gradient(dy.reshape(kept), x, y.reshape(kept), over)
        return np.broadcast_to(dx, x.shape), *(None for _ in axes)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceSum(Reduction):
    """y = sum of x; 0 over nothing. ONNX ReduceSum-13."""

    since = 13

    def reduce(self, x, axes):
        return x.sum(axes, keepdims=True)

    def gradient(self, dy, x, y, axes):
        return dy


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceMean(Reduction):
    """y = mean of x; undefined over nothing. ONNX ReduceMean-18."""

    since = 18

    def reduce(self, x, axes):
        return x.mean(axes, keepdims=True)

    def gradient(self, dy, x, y, axes):
        return dy / math.prod(x.shape[axis] for axis in axes)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceMax(Reduction):
    """y = max of x; minus infinity over nothing. ONNX ReduceMax-20.

    The gradient goes to the element it was taken from, at a tie to the first of them.
    """

    since = 20

    def reduce(self, x, axes):
        return largest(x, axes)

    def gradient(self, dy, x, y, axes):
        rest = tuple(axis for axis in range(x.ndim) if axis not in axes)
        order = rest + axes
        row = math.prod(x.shape[axis] for axis in axes)
        if row == 0:
            return np.zeros_like(x)
        rows = x.transpose(order).reshape(-1, row)
        drows = np.zeros_like(rows)
        np.put_along_axis(
            drows, np.argmax(rows, axis=1, keepdims=True), dy.transpose(order).reshape(-1, 1), 1
        )
        inverse = tuple(order.index(axis) for axis in range(x.ndim))
        return drows.reshape(tuple(x.shape[axis] for axis in order)).transpose(inverse)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReduceLogSumExp(Reduction):
    """y = ln(sum of e^x) = m + ln(sum of e^(x - m)), m = max of x. ONNX ReduceLogSumExp-28.

    Minus infinity over nothing. ONNX's function body computes it in float64 without m; m is
    clipped to finite numbers so that an infinite x gives what that body gives.
    """

    since = 28

    def reduce(self, x, axes):
        m = np.clip(largest(x, axes), -LARGEST, LARGEST)
        return m + np.log(np.exp(x - m).sum(axes, keepdims=True))

    def gradient(self, dy, x, y, axes):
        return dy * np.exp(x - y)


def largest(x, axes):
    """The largest elements along `axes`, dimensions kept; minus infinity where there are none."""
    if all(x.shape[axis] for axis in axes):
        return x.max(axes, keepdims=True)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return np.full_like(x, -np.inf, shape=shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class CumSum(Operator):
    """Partial sums along an axis: y[i] = x[0] + ... + x[i]. ONNX CumSum-14.

    x: any shape with an axis; axis: () in int64; y: as x. The last term is left out if
    `exclusive`; the sums run from the end if `reverse`.
    """

    exclusive: int = 0
    reverse: int = 0
    since = 14

    def forward(self, x, axis):
        axis = int(axis)
        x = np.flip(x, axis) if self.reverse else x
        y = np.cumsum(x, axis)
        if self.exclusive:
            last, rest = np.split(np.roll(y, 1, axis), [1], axis)
            y = np.concatenate([np.zeros_like(last), rest], axis)
        return np.flip(y, axis) if self.reverse else y

    def backward(self, grads, inputs, outputs):
        (dy,), (_, axis) = grads, inputs
        return self.with_(reverse=1 - self.reverse).forward(dy, axis), None
