"""Cases of the elementwise functions: of one input, activations with attributes, of several inputs
that broadcast, and one input twice.
"""

from collections.abc import Mapping
from operator import methodcaller

from d5test.case import Operator, Tensor
from d5test.reference.operators import elementwise
from d5test.strategies.draw import ORDINARY, Draw, Regime, Shape
from d5test.strategies.registry import attributes, choices, inputs
from d5test.strategies.sizes import TIED

SMALL: tuple[Regime, ...] = (*ORDINARY, ("scaled", -6))
NEAR_ONE: Regime = ("uniform", 0.75, 1.25)
WIDE: Regime = ("uniform", -5, 5)
"""As wide as what is linear between two bends."""
INSIDE: tuple[Regime, ...] = (("uniform", -0.9375, 0.9375), ("scaled", -6), ("uniform", 0.9, 0.99))
"""Between -1 and 1, near zero, and near the end at which the derivative is infinite."""
OUTSIDE: tuple[Regime, ...] = (("uniform", 1.0625, 4), ("uniform", 1.01, 1.1), ("uniform", 4, 64))

ZEROS: Regime = ("often", 0.0, -0.0)
"""Both zeros, at which many functions have a kink."""
HALVES: Regime = ("often", 0.5, -0.5, 1.5, -1.5, 2.5, -0.0)
NEIGHBOURS: tuple[Regime, ...] = tuple(("near", x, 4096) for x in (2.0, -3.0, 1.5, -2.5))
"""Numbers beside a whole one, and beside the middle between two."""

REGIMES: Mapping[type[elementwise.Unary], tuple[Regime, ...]] = {
    elementwise.Celu: (*SMALL, ZEROS),
    elementwise.Elu: (*SMALL, ZEROS),
    elementwise.HardSigmoid: (*ORDINARY, WIDE, ("often", -2.5, 2.5, -3.0, 3.0)),
    elementwise.Selu: (*SMALL, ZEROS),
    elementwise.ThresholdedRelu: (*ORDINARY, WIDE, ("often", 1.0, 0.0, -0.0)),
    elementwise.Abs: (*ORDINARY, ZEROS),
    elementwise.Erf: SMALL,
    elementwise.Exp: SMALL,
    elementwise.Gelu: SMALL,
    elementwise.HardSwish: (*ORDINARY, WIDE, ("often", -3.0, 3.0, 0.0)),
    elementwise.Identity: ORDINARY,
    elementwise.LeakyRelu: (*ORDINARY, ZEROS),
    elementwise.Log: ("positive", NEAR_ONE),
    elementwise.Mish: SMALL,
    elementwise.Neg: ORDINARY,
    elementwise.Reciprocal: ("nonzero", "positive"),
    elementwise.Relu: (*ORDINARY, ZEROS),
    elementwise.Sigmoid: SMALL,
    elementwise.Sign: (*ORDINARY, ZEROS),
    elementwise.Softplus: SMALL,
    elementwise.Sqrt: ("positive", NEAR_ONE),
    elementwise.Tanh: SMALL,
    **dict.fromkeys((elementwise.Sin, elementwise.Cos, elementwise.Tan), (*SMALL, WIDE)),
    **dict.fromkeys((elementwise.Asin, elementwise.Acos, elementwise.Atanh), INSIDE),
    **dict.fromkeys((elementwise.Atan, elementwise.Asinh), SMALL),
    **dict.fromkeys((elementwise.Sinh, elementwise.Cosh), (*SMALL, WIDE)),
    elementwise.Acosh: OUTSIDE,
    elementwise.Shrink: (*ORDINARY, WIDE, ("often", 0.5, -0.5, 1.0, -1.0)),
    elementwise.Softsign: (*SMALL, ZEROS),
    elementwise.Swish: SMALL,
    **dict.fromkeys(
        (elementwise.Floor, elementwise.Ceil, elementwise.Round),
        (*ORDINARY, WIDE, HALVES, *NEIGHBOURS),
    ),
}
"""Where each function is defined and its derivative finite, and where it is delicate."""
OPERANDS: Mapping[type[elementwise.Binary], tuple[tuple[Regime, ...], tuple[Regime, ...]]] = {
    elementwise.Add: (ORDINARY, ORDINARY),
    elementwise.Sub: (ORDINARY, ORDINARY),
    elementwise.Mul: (ORDINARY, ORDINARY),
    elementwise.Div: (ORDINARY, ("nonzero", "positive")),
}
"""The regimes of both operands."""
VAST = 7
"""One quotient in so many is of numbers whose squares, by which none divides, leave the range."""


@inputs(*REGIMES)
def unary_inputs(d: Draw, op: elementwise.Unary) -> tuple[Tensor | None, ...]:
    """One tensor of any rank, in the regimes of its operator."""
    return (d.tensor(d.shape(0), *REGIMES[type(op)]),)


choices(elementwise.Elu, alpha=methodcaller("real_or", -0.5, 2, 1.0))
choices(elementwise.ThresholdedRelu, alpha=methodcaller("real_or", -1, 2, 1.0))
choices(
    elementwise.LeakyRelu, alpha=methodcaller("real_or", -0.5, 1.5, elementwise.LeakyRelu().alpha)
)
choices(elementwise.Swish, elementwise.SwiGLU, alpha=methodcaller("real_or", -0.5, 2, 1.0))
choices(elementwise.Gelu, approximate=("none", "tanh"))


@attributes(elementwise.Shrink)
def shrink_attributes(d: Draw) -> elementwise.Shrink:
    """Hard and soft thresholds, and a bias of its own."""
    lambd = d.real_or(0, 1.5, 0.5, 1.0)
    return elementwise.Shrink(lambd=lambd, bias=d.real_or(-1, 1, 0.0, lambd))


@attributes(elementwise.Celu)
def celu_attributes(d: Draw) -> elementwise.Celu:
    """1, or another number, by which x is divided: not near zero."""
    alpha = d.real_or(-0.5, 2, 1.0)
    return elementwise.Celu(alpha=alpha if alpha >= 0.25 else alpha - 1)


@attributes(elementwise.Selu)
def selu_attributes(d: Draw) -> elementwise.Selu:
    """The paper's constants, or others."""
    other = elementwise.Selu(alpha=d.real(-0.5, 2), gamma=d.real(0.25, 2))
    return d.choose((elementwise.Selu(), other))


@attributes(elementwise.HardSigmoid)
def hard_sigmoid_attributes(d: Draw) -> elementwise.HardSigmoid:
    """ONNX's slope, that of MobileNetV3, or another line."""
    cls = elementwise.HardSigmoid
    other = cls(alpha=d.real(0.125, 1), beta=d.real(0.25, 0.75))
    return d.choose((cls(), cls(alpha=elementwise.SIXTH), other))


@inputs(elementwise.PRelu)
def prelu_inputs(d: Draw, op: elementwise.PRelu) -> tuple[Tensor, Tensor]:
    """One slope, one a channel, or any that broadcast."""
    x = d.shape(0, 4)
    channels = (x[1], *(1 for _ in x[2:])) if len(x) > 1 else (1,)
    slope = d.choose((channels, (1,), d.broadcastable(x)))
    return d.tensor(x, *ORDINARY, ZEROS), d.tensor(slope if len(slope) <= len(x) else ())


def shapes(d: Draw) -> tuple[Shape, Shape]:
    """Two shapes that broadcast: the same, one or the other repeated, or both.

    Where sizes are tied, often a square and a row, which would fit along the wrong axis, too.
    """
    shape = d.shape(0)
    if d.sizes.kind == TIED and len(shape) > 1 and d.flag():
        return (shape[:2], shape[:1]) if d.flag() else (shape[:1], shape[:2])
    repeated = d.choose(((False, False), (False, True), (True, False), (True, True)))
    left, right = (d.broadcastable(shape) if each else shape for each in repeated)
    return left, right


def twice(d: Draw) -> bool:
    """Whether one tensor is passed as both operands: a gradient is lost or doubled there."""
    return d.integer(0, 2) == 2


@inputs(*OPERANDS)
def binary_inputs(d: Draw, op: elementwise.Binary) -> tuple[Tensor | None, ...]:
    """Both operands, or one of them twice."""
    left, right = OPERANDS[type(op)]
    if twice(d):
        a = d.tensor(d.shape(0), *right)
        return a, d.again(a, 0)
    a_shape, b_shape = shapes(d)
    if isinstance(op, elementwise.Div) and d.integer(1, VAST) == VAST:
        left, right = ("vast",), ("vast",)
    return d.tensor(a_shape, *left), d.tensor(b_shape, *right)


choices(elementwise.Mod, fmod=(0, 1))


@inputs(elementwise.Mod)
def mod_inputs(d: Draw, op: elementwise.Mod) -> tuple[Tensor, Tensor]:
    """Quotients of either sign that are mostly no whole numbers, nor far from zero.

    The dividend is often repeated: else it moves as the result does, and nothing is computed.
    """
    a, b = shapes(d)
    if d.flag():
        b = d.shape(1)
        a = b[1:]
    return d.tensor(a, "normal", ("uniform", -9, 9)), d.tensor(b, "nonzero", "positive")


@inputs(elementwise.SwiGLU)
def swiglu_inputs(d: Draw, op: elementwise.SwiGLU) -> tuple[Tensor, Tensor]:
    """A gate and what it lets through."""
    shape = d.shape(0)
    return d.tensor(shape, *SMALL), d.tensor(shape)


@inputs(elementwise.Pow)
def pow_inputs(d: Draw, op: elementwise.Pow) -> tuple[Tensor | None, ...]:
    """A positive base with any exponent, a negative one with a whole exponent of int64; zero with
    whole exponents that are not negative, of which the derivative is finite.
    """
    if twice(d):
        x = d.tensor(d.shape(0), "positive")
        return x, d.again(x, 0)
    base, exponent = shapes(d)
    if d.integer(0, 3) == 3:
        whole = d.choose(("int64", d.dtype))
        zeros = ("often", 0.0) if whole == "int64" else ("below", 3)
        return d.tensor(base, zeros), d.tensor(exponent, ("below", 4), dtype=whole)
    if d.flag():
        return d.tensor(base, "nonzero"), d.tensor(exponent, "ties", dtype="int64")
    return d.tensor(base, "positive"), d.tensor(exponent, ("uniform", -2, 2), "ties")


@inputs(elementwise.Max, elementwise.Mean, elementwise.Min, elementwise.Sum)
def several_inputs(d: Draw, op: Operator) -> tuple[Tensor | None, ...]:
    """One to four inputs or nine, which may have equal elements; every other one broadcasts.

    Of two, the second may be the first.
    """
    count = d.choose((1, 2, 3, 4, 4, 9))
    shape = d.shape(0)
    if count == 2 and twice(d):
        x = d.tensor(shape)
        return x, d.again(x, 0)
    regimes = ("ties",) if d.integer(0, 2) == 2 else ()
    rest = [d.broadcastable(shape) if d.flag() else shape for _ in range(count - 1)]
    return d.tensor(shape, *regimes), *(d.tensor(other, *regimes) for other in rest)


@inputs(elementwise.Clip)
def clip_inputs(d: Draw, op: elementwise.Clip) -> tuple[Tensor | None, ...]:
    """Both bounds, one and none; now and then they are the same, or exchanged."""
    x = d.tensor(d.shape(0))
    low, high = (
        d.maybe(d.literal(d.real(*around), dtype=d.dtype)) for around in ((-2, 0.5), (-0.5, 2))
    )
    if low is not None and high is not None:
        low, high = d.choose((*((low, high),) * 4, (low, low), (high, low)))
    return (x, low, high) if high is not None else (x, low) if low is not None else (x,)
