"""Elementwise functions of two and more inputs, which broadcast: arithmetic, Pow, Max, Min, Clip.

Add, Sub, Mul and Div are a table of formulas. A row is a name, the version of ONNX, f(a, b), its
partial derivatives by a and b times dy, and the text of its documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.broadcasting import unbroadcast
from d5test.reference.operators.samples import batch_of

__all__ = ["Add", "Clip", "Div", "Max", "Min", "Mul", "Pow", "Sub", "Sum"]

Formula = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, repr=False)
class Binary(Operator):
    """y = f(a, b), element by element, with NumPy's broadcasting.

    The gradient of an input is summed over the axes along which it was broadcast.
    """

    function: ClassVar[Formula]
    derivatives: ClassVar[Formula]

    def forward(self, a, b):
        return type(self).function(a, b)

    def backward(self, grads, inputs, outputs):
        (dy,), (a, b), (y,) = grads, inputs, outputs
        da, db = type(self).derivatives(dy, a, b, y)
        return unbroadcast(da, a.shape), unbroadcast(db, b.shape)

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return batch_of(*shapes)


def binary(
    name: str, since: int, function: Formula, derivatives: Formula, doc: str
) -> type[Binary]:
    """The operator of one row."""
    members = {
        "__doc__": f"{doc} ONNX {name}-{since}. a, b: shapes that broadcast.",
        "__module__": __name__,
        "__qualname__": name,
        "since": since,
        "function": staticmethod(function),
        "derivatives": staticmethod(derivatives),
    }
    return dataclass(frozen=True, kw_only=True, repr=False)(type(name, (Binary,), members))


def quotient(a, b):
    """a / b; of integers truncated towards zero."""
    if a.dtype.kind not in "iu":
        return a / b
    return a // b + ((a % b != 0) & ((a < 0) != (b < 0)))


# fmt: off
Add = binary("Add", 14, lambda a, b: a + b, lambda dy, a, b, y: (dy, dy), "y = a + b.")
Sub = binary("Sub", 14, lambda a, b: a - b, lambda dy, a, b, y: (dy, -dy), "y = a - b.")
Mul = binary("Mul", 14, lambda a, b: a * b, lambda dy, a, b, y: (dy * b, dy * a), "y = a b.")
Div = binary("Div", 14, quotient, lambda dy, a, b, y: (dy / b, -dy * y / b),
             "y = a / b; of integers truncated towards zero.")
# fmt: on


@dataclass(frozen=True, kw_only=True, repr=False)
class Pow(Operator):
    """z = x^y, with broadcasting. ONNX Pow-15.

    x floating-point; y floating-point, where x has to be positive, or of an integer type, which
    has no gradient. dx = dz y x^(y - 1), dy = dz z ln x. Of an integer x the power is one, too.
    """

    since = 15

    def forward(self, x, y):
        return (x**y).astype(x.dtype) if x.dtype.kind in "iu" else x**y

    def backward(self, grads, inputs, outputs):
        (dz,), (x, y), (z,) = grads, inputs, outputs
        dx = unbroadcast(dz * y * x ** (y - 1), x.shape)
        if y.dtype.kind in "iu":
            return dx, None
        return dx, unbroadcast(dz * z * np.log(x), y.shape)

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return batch_of(*shapes)


@dataclass(frozen=True, kw_only=True, repr=False)
class Extremum(Operator):
    """The element that is furthest to one side, of one or more inputs that broadcast.

    The gradient goes to the input it was taken from, at a tie to the first of them.
    """

    further: ClassVar[Formula]
    """The one of two that is further out."""
    beaten: ClassVar[Formula]
    """Whether the second of two is further out than the first."""

    def forward(self, *xs):
        *_, y = accumulate(xs, type(self).further)
        return y if len(xs) > 1 else y.copy()

    def backward(self, grads, inputs, outputs):
        (dy,), (first, *rest) = grads, inputs
        best = [*accumulate(inputs, type(self).further)]
        dxs = []
        for before, x in zip(best[-2::-1], rest[::-1], strict=True):
            wins = type(self).beaten(before, x)
            dxs.append(unbroadcast(dy * wins, x.shape))
            dy = dy * ~wins
        return unbroadcast(dy, first.shape), *reversed(dxs)

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return batch_of(*shapes)


@dataclass(frozen=True, kw_only=True, repr=False)
class Max(Extremum):
    """The largest of one or more inputs, element by element. ONNX Max-13."""

    since = 13
    further = staticmethod(np.maximum)
    beaten = staticmethod(np.less)


@dataclass(frozen=True, kw_only=True, repr=False)
class Min(Extremum):
    """The smallest of one or more inputs, element by element. ONNX Min-13."""

    since = 13
    further = staticmethod(np.minimum)
    beaten = staticmethod(np.greater)


@dataclass(frozen=True, kw_only=True, repr=False)
class Sum(Operator):
    """The sum of one or more inputs that broadcast, element by element. ONNX Sum-13."""

    since = 13

    def forward(self, *xs):
        *_, y = accumulate(xs)
        return y if len(xs) > 1 else y.copy()

    def backward(self, grads, inputs, outputs):
        (dy,) = grads
        return tuple(unbroadcast(dy, x.shape) for x in inputs)

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return batch_of(*shapes)


@dataclass(frozen=True, kw_only=True, repr=False)
class Clip(Operator):
    """y = min(max, max(min, x)): `max` everywhere if `min` is larger. ONNX Clip-13.

    x, y: any shape; min, max: scalars, of which either may be absent. They have no gradient.
    """

    since = 13

    def forward(self, x, low=None, high=None):
        y = x.copy() if low is None else np.maximum(x, low)
        return y if high is None else np.minimum(y, high)

    def backward(self, grads, inputs, outputs):
        (dx,), (x, *bounds) = grads, inputs
        low, high = (*bounds, None, None)[:2]
        if low is not None:
            dx = np.where(x < low, 0, dx)
        if high is not None:
            dx = np.where(x > high, 0, dx)
        return dx, *(None for _ in bounds)

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return batch_of(*shapes)
