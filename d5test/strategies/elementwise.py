"""Cases of the elementwise functions of one input. A table: operator, its regimes."""

from __future__ import annotations

from collections.abc import Mapping

from d5test.case import Tensor
from d5test.reference.operators import elementwise as ops
from d5test.strategies.draw import ORDINARY, Draw, Regime
from d5test.strategies.registry import attributes, inputs

SMALL: tuple[Regime, ...] = (*ORDINARY, ("scaled", -6))
NEAR_ONE: Regime = ("uniform", 0.75, 1.25)
WIDE: Regime = ("uniform", -5, 5)
"""As wide as what is linear between two bends."""

REGIMES: Mapping[type[ops.Unary], tuple[Regime, ...]] = {
    ops.Abs: ORDINARY,
    ops.Erf: SMALL,
    ops.Exp: SMALL,
    ops.Gelu: SMALL,
    ops.HardSwish: (*ORDINARY, WIDE),
    ops.LeakyRelu: ORDINARY,
    ops.Log: ("positive", NEAR_ONE),
    ops.Mish: SMALL,
    ops.Neg: ORDINARY,
    ops.Reciprocal: ("nonzero", "positive"),
    ops.Relu: ORDINARY,
    ops.Sigmoid: SMALL,
    ops.Softplus: SMALL,
    ops.Sqrt: ("positive", NEAR_ONE),
    ops.Tanh: SMALL,
}
"""Where each function is defined and its derivative finite, and where it is delicate."""


def unary_inputs(d: Draw, op: ops.Unary) -> tuple[Tensor | None, ...]:
    """One tensor of any rank, in the regimes of its operator."""
    return (d.tensor(d.shape(0), *REGIMES[type(op)]),)


for operator in REGIMES:
    inputs(operator)(unary_inputs)


@attributes(ops.LeakyRelu)
def leaky_relu_attributes(d: Draw) -> ops.LeakyRelu:
    """ONNX's slope, or another; beyond 0 and 1 too."""
    return ops.LeakyRelu(alpha=d.choose((ops.LeakyRelu().alpha, d.real(-0.5, 1.5))))


@attributes(ops.Gelu)
def gelu_attributes(d: Draw) -> ops.Gelu:
    """Both formulas."""
    return ops.Gelu(approximate=d.choose(("none", "tanh")))
