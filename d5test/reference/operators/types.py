"""Conversions between dtypes. They are given arrays in their own dtypes, and return such."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from d5test.case import Batch, Operator, dtype_of
from d5test.dtypes import EIGHT_BITS, NAMES, SCALES

__all__ = ["BitCast", "Cast", "CastLike"]


def is_real(dtype):
    """Whether a dtype is a floating-point one, of any width."""
    return "float" in dtype.name


class Conversion(Operator):
    """y, of the shape of x, in another dtype. In real numbers it is the identity.

    A floating-point format gets the nearest number, ties to even. Beyond its largest one is
    infinity, or where it has none NaN; a format of eight bits has its largest number there with
    `saturate`. A whole number is cut towards zero, one of another range keeps its lowest bits.
    """

    typed = True

    def converted(self, x, dtype):
        if not isinstance(x, np.ndarray | np.generic):  # real numbers, with a bar or a derivative
            return +x
        if dtype == np.bool_:
            return x.astype(np.float64) != 0
        if dtype.name == SCALES:
            return scales(x, self.round_mode, self.saturate).astype(dtype)
        if is_real(dtype):
            return x.astype(dtype) if dtype == np.float64 else nearest(x, dtype, self.saturate)
        if is_real(x.dtype):
            x = np.trunc(x.astype(np.float64))
        unsigned = dtype.name.startswith("u") if is_real(x.dtype) else x.dtype.kind == "u"
        return x.astype(np.uint64 if unsigned else np.int64).astype(dtype)

    def undefined(self, x, *like):
        """ONNX leaves open what whole number stands for NaN, or for one out of its range, and
        what power of two for a negative one.
        """
        dtype = self.dtype(*like)
        if dtype.name == SCALES:
            return np.signbit(x.astype(np.float64))
        if dtype == np.bool_ or not is_real(x.dtype):
            return False
        if is_real(dtype):
            return np.isnan(x) & (dtype.name == "float4_e2m1fn")
        info, whole = ml_dtypes.iinfo(dtype), np.trunc(x.astype(np.float64))
        return ~((whole >= float(info.min)) & (whole < float(info.max) + 1))

    def forward(self, x, *like):
        return self.converted(x, self.dtype(*like))

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *like) = grads, inputs
        dx = None if dy is None or not is_real(x.dtype) else self.converted(dy, x.dtype)
        return dx, *(None for _ in like)

    def batch(self, x, *like):
        return Batch((0, *(None for _ in like)), (0,)) if x else None


def nearest(x, dtype, saturate=1):
    """The nearest numbers of a format, in one step from any other: no rounding before it."""
    info, saturates = ml_dtypes.finfo(dtype), dtype.name in EIGHT_BITS and saturate
    x = in_double(x)
    _, exponent = np.frexp(x)
    _, least = np.frexp(float(info.smallest_normal))
    step = np.ldexp(1.0, np.maximum(exponent, least) - int(info.nmant) - 1)
    y, largest = np.rint(x / step) * step, float(info.max)
    beyond = largest if saturates or dtype.name == "float4_e2m1fn" else np.inf
    return np.where(np.abs(y) > largest, np.copysign(beyond, x), y).astype(dtype)


def scales(x, round_mode="up", saturate=1):
    """Powers of two from 2^-127 to 2^127, which have neither a zero nor an infinity."""
    x = in_double(x)
    significand, exponent = np.frexp(x)  # from 1/2 to 1
    up = {"up": significand > 0.5, "nearest": significand >= 0.75, "down": False}[round_mode]
    exponent = np.where(np.isinf(x), 1024, np.where(x == 0, -1024, exponent - 1 + up))
    inside = np.clip(exponent, -127, 127)
    lost = np.isnan(x) | ((exponent != inside) & (not saturate))
    return np.where(lost, np.nan, np.ldexp(1.0, inside))


def in_double(x):
    """The numbers in float64; one that has more bits with a last bit that stands for the rest."""
    y = x.astype(np.float64)
    if x.dtype.name not in ("int64", "uint64"):
        return y
    few = x >> 12 << 12
    return np.where(np.abs(y) < 2**53, y, np.where(few == x, few, few + 2048).astype(np.float64))


@dataclass(frozen=True, kw_only=True, repr=False)
class Cast(Conversion):
    """x in the dtype with the number `to`, see `d5test.dtypes`. ONNX Cast-28.

    x, y: any shape, any two dtypes. `round_mode` is that of powers of two (float8_e8m0fnu).
    """

    to: int
    saturate: int = 1
    round_mode: str = "up"
    since = 28

    def dtype(self):
        return dtype_of(NAMES[self.to])


@dataclass(frozen=True, kw_only=True, repr=False)
class CastLike(Conversion):
    """x in the dtype of another tensor. ONNX CastLike-25.

    x, y: any shape; target_type: any shape, only its dtype counts, and it has no gradient.
    """

    saturate: int = 1
    round_mode: str = "up"
    since = 25

    def dtype(self, like):
        return like.dtype


@dataclass(frozen=True, kw_only=True, repr=False)
class BitCast(Operator):
    """The bits of x, read as another dtype of as many: that with the number `to`.
    ONNX BitCast-26. x, y: any shape.
    """

    to: int
    since = 26
    typed = True
    exact = True

    def forward(self, x):
        return x.view(dtype_of(NAMES[self.to])) if isinstance(x, np.ndarray | np.generic) else +x

    def batch(self, x):
        return Batch((0,), (0,)) if x else None
