"""Logic of booleans and of bits, and which numbers are none: exact, and without a gradient."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from d5test.reference.operators.broadcasting import Broadcasting

__all__ = ["And", "Not", "Or", "Xor"]
__all__ += ["BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"]
__all__ += ["IsInf", "IsNaN"]


class Logic(Broadcasting):
    """A function of the elements of inputs that broadcast."""

    exact = True
    function: ClassVar[Any]

    def forward(self, *xs):
        return type(self).function(*xs)


@dataclass(frozen=True, kw_only=True, repr=False)
class And(Logic):
    """Whether both are true. ONNX And-7. a, b: booleans of shapes that broadcast."""

    since = 7
    function = np.logical_and


@dataclass(frozen=True, kw_only=True, repr=False)
class Or(Logic):
    """Whether one of two is true. ONNX Or-7. a, b: booleans of shapes that broadcast."""

    since = 7
    function = np.logical_or


@dataclass(frozen=True, kw_only=True, repr=False)
class Xor(Logic):
    """Whether just one of two is true. ONNX Xor-7. a, b: booleans of shapes that broadcast."""

    since = 7
    function = np.logical_xor


@dataclass(frozen=True, kw_only=True, repr=False)
class Not(Logic):
    """Whether it is false. ONNX Not-1. x, y: booleans of any shape."""

    since = 1
    function = np.logical_not


@dataclass(frozen=True, kw_only=True, repr=False)
class BitwiseAnd(Logic):
    """And, bit by bit. ONNX BitwiseAnd-18. a, b: integers of shapes that broadcast."""

    since = 18
    function = np.bitwise_and


@dataclass(frozen=True, kw_only=True, repr=False)
class BitwiseOr(Logic):
    """Or, bit by bit. ONNX BitwiseOr-18. a, b: integers of shapes that broadcast."""

    since = 18
    function = np.bitwise_or


@dataclass(frozen=True, kw_only=True, repr=False)
class BitwiseXor(Logic):
    """Xor, bit by bit. ONNX BitwiseXor-18. a, b: integers of shapes that broadcast."""

    since = 18
    function = np.bitwise_xor


@dataclass(frozen=True, kw_only=True, repr=False)
class BitwiseNot(Logic):
    """Not, bit by bit. ONNX BitwiseNot-18. x, y: integers of any shape."""

    since = 18
    function = np.invert


@dataclass(frozen=True, kw_only=True, repr=False)
class BitShift(Broadcasting):
    """The bits of x, y places further in `direction`, "LEFT" or "RIGHT". ONNX BitShift-28.

    x, y: integers of one type, of shapes that broadcast. What is shifted out is lost; copies of
    the sign come in from the left, zeros from the right. Of a y that is negative, or as many bits
    as x has or more, nothing else is left.
    """

    direction: str
    since = 28
    exact = True

    def forward(self, x, y):
        outside = (y < 0) | (y >= 8 * x.dtype.itemsize)
        y = np.where(outside, 0, y)
        if self.direction == "LEFT":
            return np.where(outside, 0, x << y)
        return np.where(outside, -(x < 0).astype(x.dtype), x >> y)


@dataclass(frozen=True, kw_only=True, repr=False)
class IsNaN(Logic):
    """Whether it is not a number. ONNX IsNaN-20. x: any shape; y: booleans."""

    since = 20
    function = np.isnan


@dataclass(frozen=True, kw_only=True, repr=False)
class IsInf(Broadcasting):
    """Whether it is infinite, of a sign that is asked for. ONNX IsInf-20.

    x: any shape; y: booleans.
    """

    detect_negative: int = 1
    detect_positive: int = 1
    since = 20
    exact = True

    def forward(self, x):
        asked = np.where(np.signbit(x), self.detect_negative, self.detect_positive)
        return np.isinf(x) & (asked == 1)
