"""Cases of quantisation: quotients beside halves, integers of either sign, zero points, scales."""

from dataclasses import replace

from d5test.case import Tensor
from d5test.reference.operators import quantisation
from d5test.reference.operators.linear import MatMul
from d5test.strategies.draw import Draw, Regime, Shape
from d5test.strategies.linear import matmul_inputs
from d5test.strategies.registry import attributes, choices, inputs
from d5test.strategies.windows import conv_attributes, conv_inputs
from d5test.values import finfo

BYTES = ("uint8", "int8")
NARROW = (*BYTES, "uint16", "int16")
BESIDE: tuple[Regime, ...] = tuple(("near", x, 4096) for x in (2.5, -3.5, 126.5))
"""Numbers beside the middle between two whole ones, where a lower precision has the middle."""
HALVES: Regime = ("often", 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 7.5)
"""The middle itself, of which the even number is the nearest."""
POWERS: Regime = ("cycled", 1.0, 0.5, 2.0, 0.25)
choices(
    quantisation.QuantizeLinear,
    axis=lambda d: d.any_axis(3),
    block_size=(0, 0, 2, 3),
    output_dtype=(0, 0, 0, 3, 4, 5),
)
choices(quantisation.DequantizeLinear, axis=lambda d: d.any_axis(3), block_size=(0, 0, 2, 3))


def parameter(d: Draw, op: quantisation.Scaled, shape: Shape) -> Shape:
    """The shape of a scale: of one, of one for each place along the axis, or for each block."""
    axis = op.axis % len(shape)
    if op.block_size:
        return (*shape[:axis], -(-shape[axis] // op.block_size), *shape[axis + 1 :])
    return d.choose(((), (shape[axis],)))


@inputs(quantisation.QuantizeLinear)
def quantize_inputs(d: Draw, op: quantisation.QuantizeLinear) -> tuple[Tensor, ...]:
    """Quotients beside halves, ordinary ones, and some out of range."""
    shape = d.sides(d.rank_with(op.axis, 3))
    scale = parameter(d, op, shape)
    x = d.tensor(shape, *BESIDE, HALVES, HALVES, "normal", ("uniform", -400, 400))
    scales = d.tensor(scale, POWERS, POWERS, "positive")
    if op.output_dtype or d.choose((False, False, False, True)):
        return x, scales
    return x, scales, Tensor(scale, d.choose(NARROW), ("bits",))


@inputs(quantisation.DequantizeLinear)
def dequantize_inputs(d: Draw, op: quantisation.DequantizeLinear) -> tuple[Tensor, ...]:
    """Integers of every narrow dtype, with a zero point and without."""
    shape, dtype = d.sides(d.rank_with(op.axis, 3)), d.choose(NARROW)
    scale = parameter(d, op, shape)
    x, scales = Tensor(shape, dtype, ("bits",)), d.tensor(scale, "positive")
    return (x, scales, Tensor(scale, dtype, ("bits",))) if d.flag() else (x, scales)


@inputs(quantisation.DynamicQuantizeLinear)
def dynamic_inputs(d: Draw, op: quantisation.DynamicQuantizeLinear) -> tuple[Tensor]:
    """Numbers of both signs, and of one alone; not all zero."""
    shape = d.shape(0, empty=False)
    return (d.tensor(shape, "normal", "positive", "heavy", ("uniform", -4, -1)),)


def zeros(d: Draw, tensor: Tensor, *shapes: Shape) -> Tensor:
    """A zero point of the integers of a tensor: one, or one for each row, column or filter."""
    return Tensor(d.choose(((), *shapes)), tensor.dtype, ("bits",))


def factors(d: Draw, *drawn: Tensor | None) -> tuple[Tensor, Tensor]:
    """The first two of what was drawn as integers, each of its own dtype; no side is empty."""
    a, b = (
        Tensor(tuple(n or 1 for n in t.shape), d.choose(BYTES), ("bits",)) for t in drawn[:2] if t
    )
    return a, b


def optional(d: Draw, a: Tensor, b: Tensor, *zero: Tensor) -> tuple[Tensor, ...]:
    """Both factors, with both zero points, with the first, and without."""
    return a, b, *zero[: d.integer(0, 2)]


@inputs(quantisation.MatMulInteger)
def matmul_integer_inputs(d: Draw, op: quantisation.MatMulInteger) -> tuple[Tensor, ...]:
    """As those of MatMul."""
    a, b = factors(d, *matmul_inputs(d, MatMul()))
    matrices = len(a.shape) == len(b.shape) == 2
    rows, columns = ((a.shape[:1],), (b.shape[1:],)) if matrices else ((), ())
    return optional(d, a, b, zeros(d, a, *rows), zeros(d, b, *columns))


@attributes(quantisation.ConvInteger)
def conv_integer_attributes(d: Draw) -> quantisation.ConvInteger:
    """As those of Conv."""
    return quantisation.ConvInteger(**conv_attributes(d).attributes)


@attributes(quantisation.QLinearConv)
def qlinear_conv_attributes(d: Draw) -> quantisation.QLinearConv:
    """As those of Conv."""
    return quantisation.QLinearConv(**conv_attributes(d).attributes)


@inputs(quantisation.ConvInteger)
def conv_integer_inputs(d: Draw, op: quantisation.ConvInteger) -> tuple[Tensor, ...]:
    """As those of Conv."""
    x, w = factors(d, *conv_inputs(d, op))
    return optional(d, x, w, zeros(d, x), zeros(d, w, w.shape[:1]))


def requantised(d: Draw, a: Tensor, b: Tensor, each: Shape) -> tuple[Tensor, ...]:
    """Small sums times a scale of a little more than a half, which a lower precision takes for
    it; or sums of all integers, of which many are out of range.
    """
    half = 0.5 + 32 * float(finfo(d.dtype).eps)
    small = d.flag()
    a, b = (replace(t, values=("below", 8)) if small else t for t in (a, b))
    zero = [d.literal(3, t.dtype) if small else zeros(d, t) for t in (a, b)]
    scales = [d.literal(s, d.dtype) for s in ((1.0, half, 1.0) if small else (0.25, 0.75, 24.0))]
    if d.flag():
        scales[1] = Tensor(each, d.dtype, ("constant", half) if small else ("positive",))
        zero[1] = Tensor(each, b.dtype, ("constant", 3) if small else ("bits",))
    y_zero = Tensor((), a.dtype, ("bits",))
    return a, scales[0], zero[0], b, scales[1], zero[1], scales[2], y_zero


@inputs(quantisation.QLinearMatMul)
def qlinear_matmul_inputs(d: Draw, op: quantisation.QLinearMatMul) -> tuple[Tensor, ...]:
    """Matrices, with leading axes that broadcast."""
    a, b = factors(d, *matmul_inputs(d, MatMul()))
    return requantised(d, a, b, b.shape[1:] if len(a.shape) == len(b.shape) == 2 else ())


@inputs(quantisation.QLinearConv)
def qlinear_conv_inputs(d: Draw, op: quantisation.QLinearConv) -> tuple[Tensor, ...]:
    """As those of Conv, with a bias and without."""
    x, w = factors(d, *conv_inputs(d, op))
    bias = Tensor(w.shape[:1], "int32", ("within", 9))
    return *requantised(d, x, w, w.shape[:1]), *((bias,) if d.flag() else ())
