"""Numbers as integers of few bits, a scale and a zero point: x is about scale (y - zero).

Integers are multiplied and added exactly; what they become is rounded to even, and kept within
the range of its dtype.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from d5test.case import Operator, dtype_of
from d5test.dtypes import NAMES
from d5test.reference.operators.broadcasting import plain
from d5test.reference.operators.types import is_real, nearest
from d5test.reference.operators.windows import Conv

__all__ = ["DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"]
__all__ += ["ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"]


def saturated(y, zero, dtype, saturate=1):
    """The nearest integers, even ones of two, from the zero point on; within the dtype's range.

    Or the nearest numbers of a floating-point format, whose zero point is zero.
    """
    if is_real(dtype):
        return nearest(y, dtype, saturate)
    ends = ml_dtypes.iinfo(dtype)
    whole = np.rint(y) + np.asarray(zero, np.float64)
    return np.clip(whole, ends.min, ends.max).astype(dtype)


def along(parameter, shape):
    """A parameter as it broadcasts: of this shape where it is a vector."""
    return parameter.reshape(shape) if parameter.ndim == 1 else parameter


def centred(x, zero=None, shape=(-1,)):
    """Integers less their zero point."""
    x = x.astype(np.int64)
    return x if zero is None else x - along(zero, shape).astype(np.int64)


@dataclass(frozen=True, kw_only=True, repr=False)
class Scaled(Operator):
    """Scales and zero points: one for all, one along `axis`, or one for each block along it.

    scale, zero: (), (n,), or as x with ceil(n / block_size) along the axis.
    """

    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0

    def spread(self, parameter, shape):
        """A scale or a zero point as it broadcasts to x."""
        if parameter.ndim == 0:
            return parameter
        axis = self.axis % len(shape)
        if not self.block_size:
            return parameter.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        repeated = np.repeat(parameter, self.block_size, axis)
        return np.take(repeated, range(shape[axis]), axis)


def quotient(x, scale):
    """x / scale, in which a scale that is a power of two rounds nothing: a half is one."""
    exact, power = plain(x) / plain(scale), np.frexp(plain(scale))[0] == 0.5
    return np.where(power, x.like(exact) if hasattr(x, "like") else exact, x / scale)


@dataclass(frozen=True, kw_only=True, repr=False)
class QuantizeLinear(Scaled):
    """y = round(x / scale) + zero. ONNX QuantizeLinear-28.

    x: any shape; scale and zero as `Scaled` has them; y: as x, of the dtype of zero; without, of
    `output_dtype`, or uint8. Formats of eight bits saturate or do not, as Cast has it.
    """

    precision: int = 0
    saturate: int = 1
    since = 28

    def forward(self, x, scale, zero=None):
        dtype = zero.dtype if zero is not None else dtype_of(NAMES[self.output_dtype or 2])
        zero = 0 if zero is None else self.spread(zero, x.shape)
        return saturated(quotient(x, self.spread(scale, x.shape)), zero, dtype, self.saturate)


@dataclass(frozen=True, kw_only=True, repr=False)
class DequantizeLinear(Scaled):
    """y = (x - zero) scale. ONNX DequantizeLinear-28.

    x: integers of any shape; scale and zero as `Scaled` has them; y: as x, of the dtype of scale.
    """

    since = 28

    def forward(self, x, scale, zero=None):
        x = x.astype(np.float64)
        if zero is not None:
            x = x - self.spread(zero, x.shape).astype(np.float64)
        return x * self.spread(scale, x.shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class DynamicQuantizeLinear(Operator):
    """As QuantizeLinear, by the range of x and 0. ONNX DynamicQuantizeLinear-11.

    scale = (max(0, max x) - min(0, min x)) / 255, zero = round(-min(0, min x) / scale).
    x: any shape; y: as x in uint8, scale: (), zero: () in uint8.
    """

    since = 11

    def forward(self, x):
        least, most = np.minimum(x.min(), 0), np.maximum(x.max(), 0)
        scale = (most - least) / 255
        zero = np.clip(np.rint(-least / scale), 0, 255)
        y = np.clip(np.rint(x / scale) + zero, 0, 255)
        return y.astype(np.uint8), scale, zero.astype(np.uint8)


@dataclass(frozen=True, kw_only=True, repr=False)
class MatMulInteger(Operator):
    """(a - a_zero) (b - b_zero), exactly. ONNX MatMulInteger-10.

    a, b: matrices of int8 or uint8 as MatMul has them; a_zero: (), or one for each row; b_zero:
    (), or one for each column; y in int32.
    """

    since = 10
    exact = True

    def forward(self, a, b, a_zero=None, b_zero=None):
        return (centred(a, a_zero, (-1, 1)) @ centred(b, b_zero)).astype(np.int32)


@dataclass(frozen=True, kw_only=True, repr=False)
class ConvInteger(Conv):
    """Conv of x - x_zero and w - w_zero, exactly. ONNX ConvInteger-10.

    x, w: as Conv has them, in int8 or uint8; x_zero: (); w_zero: (), or one for each filter; y in
    int32.
    """

    since = 10
    exact = True
    backward = Operator.backward

    def forward(self, x, w, x_zero=None, w_zero=None):
        filters = (-1, *(1 for _ in w.shape[1:]))
        y = super().forward(centred(x, x_zero), centred(w, w_zero, filters))
        return y.astype(np.int32)


@dataclass(frozen=True, kw_only=True, repr=False)
class QLinearMatMul(Operator):
    """MatMulInteger, requantised: y = round(sums a_scale b_scale / y_scale) + y_zero.

    ONNX QLinearMatMul-21. a, b: matrices of int8 or uint8; the scales and zero points of a: (),
    or one for each row, those of b: (), or one for each column, those of y: (); y as y_zero.
    """

    since = 21
    product = MatMulInteger

    def forward(self, a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
        sums = self.product().forward(a, b, a_zero, b_zero).astype(np.float64)
        scale = along(a_scale, (-1, 1)) * b_scale / y_scale
        return saturated(sums * scale, y_zero, y_zero.dtype)


@dataclass(frozen=True, kw_only=True, repr=False)
class QLinearConv(ConvInteger):
    """ConvInteger with a bias, requantised: y = round(sums x_scale w_scale / y_scale) + y_zero.

    ONNX QLinearConv-10. w_scale, w_zero: (), or one for each filter; b: (m,) in int32, of the
    scale x_scale w_scale; the other scales and zero points: (); y as y_zero.
    """

    exact = False

    def forward(self, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b=None):
        sums = super().forward(x, w, x_zero, w_zero).astype(np.float64)
        channels = (-1, *(1 for _ in w.shape[2:]))
        if b is not None:
            sums = sums + b.reshape(channels)
        scale = x_scale * along(w_scale, channels) / y_scale
        return saturated(sums * scale, y_zero, y_zero.dtype)

    def multiplications(self, *shapes):
        return super().multiplications(shapes[0], shapes[3])
