"""Operators that give a tensor another shape: every element stays where it is.

Their gradient has the shape of x again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from d5test.case import Operator

__all__ = ["Flatten", "Squeeze", "Unsqueeze"]


class View(Operator):
    """The elements of x, in its order, in another shape."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *rest) = grads, inputs
        return dy.reshape(x.shape), *(None for _ in rest)


@dataclass(frozen=True, kw_only=True, repr=False)
class Flatten(View):
    """x as a matrix: the axes before `axis` are its rows, the others its columns. ONNX Flatten-25.

    With `axis` 0 there is one row.
    """

    axis: int = 1
    since = 25

    def forward(self, x):
        axis = self.axis + x.ndim if self.axis < 0 else self.axis
        return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@dataclass(frozen=True, kw_only=True, repr=False)
class Squeeze(View):
    """x without axes of size 1: those in `axes`, integers, or all if absent. ONNX Squeeze-25."""

    since = 25

    def forward(self, x, axes=None):
        if axes is None:
            return x.reshape(tuple(n for n in x.shape if n != 1))
        dropped = {int(axis) % x.ndim for axis in axes}
        if any(x.shape[axis] != 1 for axis in dropped):
            raise ValueError(f"axes {sorted(dropped)} of {x.shape} are not all of size 1")
        return x.reshape(tuple(n for axis, n in enumerate(x.shape) if axis not in dropped))


@dataclass(frozen=True, kw_only=True, repr=False)
class Unsqueeze(View):
    """x with axes of size 1 where y's `axes`, integers, are. ONNX Unsqueeze-25."""

    since = 25

    def forward(self, x, axes):
        rank = x.ndim + len(axes)
        new = {int(axis) % rank for axis in axes}
        rest = iter(x.shape)
        return x.reshape(tuple(1 if axis in new else next(rest) for axis in range(rank)))
