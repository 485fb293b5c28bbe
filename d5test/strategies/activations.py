"""Cases of the activations with attributes: ONNX's own constants, those of a paper, and others."""

from __future__ import annotations

from collections.abc import Mapping

from d5test.case import Tensor
from d5test.reference.operators import activations as ops
from d5test.reference.operators.elementwise import Unary
from d5test.strategies.draw import ORDINARY, Draw, Regime
from d5test.strategies.elementwise import SMALL, WIDE
from d5test.strategies.registry import attributes, inputs

REGIMES: Mapping[type[Unary], tuple[Regime, ...]] = {
    ops.Celu: SMALL,
    ops.Elu: SMALL,
    ops.HardSigmoid: (*ORDINARY, WIDE),
    ops.Selu: SMALL,
    ops.ThresholdedRelu: (*ORDINARY, WIDE),
}
"""Where each is delicate."""


def bent_inputs(d: Draw, op: Unary) -> tuple[Tensor | None, ...]:
    """One tensor of any rank."""
    return (d.tensor(d.shape(0), *REGIMES[type(op)]),)


for operator in REGIMES:
    inputs(operator)(bent_inputs)


@attributes(ops.Celu)
def celu_attributes(d: Draw) -> ops.Celu:
    """ONNX's alpha, or another positive one."""
    return ops.Celu(alpha=d.choose((1.0, d.real(0.25, 2))))


@attributes(ops.Elu)
def elu_attributes(d: Draw) -> ops.Elu:
    """ONNX's alpha, or another one."""
    return ops.Elu(alpha=d.choose((1.0, d.real(0.25, 2))))


@attributes(ops.Selu)
def selu_attributes(d: Draw) -> ops.Selu:
    """The paper's constants, or others."""
    return d.choose((ops.Selu(), ops.Selu(alpha=d.real(0.25, 2), gamma=d.real(0.25, 2))))


@attributes(ops.HardSigmoid)
def hard_sigmoid_attributes(d: Draw) -> ops.HardSigmoid:
    """ONNX's slope, that of MobileNetV3, or another line."""
    other = ops.HardSigmoid(alpha=d.real(0.125, 1), beta=d.real(0.25, 0.75))
    return d.choose((ops.HardSigmoid(), ops.HardSigmoid(alpha=ops.SIXTH), other))


@attributes(ops.ThresholdedRelu)
def thresholded_relu_attributes(d: Draw) -> ops.ThresholdedRelu:
    """ONNX's threshold, or another; below zero too."""
    return ops.ThresholdedRelu(alpha=d.choose((1.0, d.real(-1, 2))))


@inputs(ops.PRelu)
def prelu_inputs(d: Draw, op: ops.PRelu) -> tuple[Tensor, Tensor]:
    """One slope, one a channel, or any that broadcast."""
    x = d.shape(0, 4)
    channels = (x[1], *(1 for _ in x[2:])) if len(x) > 1 else (1,)
    slope = d.choose((channels, (1,), d.broadcastable(x)))
    return d.tensor(x), d.tensor(slope if len(slope) <= len(x) else ())
