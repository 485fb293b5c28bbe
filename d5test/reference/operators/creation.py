"""Tensors that are made of shapes and of numbers that count: exact, and without a gradient."""

import math
from dataclasses import dataclass

import numpy as np

from d5test.case import Operator, dtype_of
from d5test.dtypes import NAMES

__all__ = ["ConstantOfShape", "EyeLike", "Range", "Shape", "Size"]


@dataclass(frozen=True, kw_only=True, repr=False)
class ConstantOfShape(Operator):
    """One number everywhere. ONNX ConstantOfShape-25.

    shape: (rank,) int64, of no sides: y is (). `value` is a tensor of one element, its dtype,
    shape and numbers; without one it is 0 in float32.
    """

    value: tuple[str, tuple[int, ...], tuple[float, ...]] = ("float32", (1,), (0.0,))
    since = 25
    typed = True
    exact = True

    def forward(self, shape):
        name, _, (number,) = self.value
        return np.full(tuple(map(int, shape)), number, dtype_of(name))


@dataclass(frozen=True, kw_only=True, repr=False)
class EyeLike(Operator):
    """Ones on a diagonal, zeros elsewhere. ONNX EyeLike-22.

    x, y: (n, m). The diagonal `k` is the main one, or one above (k > 0) or below it. y is of the
    dtype with ONNX's number `dtype`; without, of that of x.
    """

    dtype: int | None = None
    k: int = 0
    since = 22
    exact = True

    def forward(self, x):
        name = NAMES.get(self.dtype, "")
        kept = not name or ("float" in name and x.dtype.kind == "f")
        y = np.zeros_like(x if kept else np.empty(x.shape, "float64" if "float" in name else name))
        y[...] = np.eye(*x.shape, k=self.k)
        return y


@dataclass(frozen=True, kw_only=True, repr=False)
class Range(Operator):
    """y[i] = start + i delta, below the limit, or above it if delta < 0. ONNX Range-27.

    start, limit, delta: (), or (1,), as in ONNX's function of AffineGrid; y: (n,),
    n = max(0, ceil((limit - start) / delta)).
    """

    stash_type: int = 1
    since = 27
    exact = True

    def forward(self, start, limit, delta):
        start, limit, delta = (x.reshape(()) for x in (start, limit, delta))
        n = max(0, math.ceil((limit - start) / delta))
        return start + np.arange(n, dtype=start.dtype) * delta


@dataclass(frozen=True, kw_only=True, repr=False)
class Shape(Operator):
    """The sides of x, from axis `start` up to `end`, as those of a slice. ONNX Shape-25.

    x: any shape; y: (n,) in int64.
    """

    start: int = 0
    end: int | None = None
    since = 25
    exact = True

    def forward(self, x):
        return np.array(x.shape[self.start : self.end], np.int64)


@dataclass(frozen=True, kw_only=True, repr=False)
class Size(Operator):
    """How many elements there are. ONNX Size-25. x: any shape; y: () in int64."""

    since = 25
    exact = True

    def forward(self, x):
        return np.array(x.size, np.int64)
