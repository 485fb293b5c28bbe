"""Activations with attributes, or with slopes that are learned."""

from __future__ import annotations

from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.arguments import Array
from d5test.backends.jax.framework import jnp, nn

rows = Table()
SELU = (1.6732631921768188, 1.0507010221481323)
"""jax's alpha and gamma, as float32 has them."""
HARD = (0.1666666716337204, 0.5)
"""The line of jax's hard sigmoid, as float32 has it."""


@rows.native("Elu")
def elu(op: Any, x: Array) -> Array:
    return nn.elu(x, op.alpha)


@rows.native("Celu")
def celu(op: Any, x: Array) -> Array:
    return nn.celu(x, op.alpha)


@rows.native("Selu")
@planned
def selu(op: Any, x: Array) -> Plan:
    """Composed (of elu) with other constants than jax's, of which float32 has ONNX's."""
    if (op.alpha, op.gamma) == SELU and x.dtype != jnp.float64:
        function: Plan = nn.selu
        return function
    alpha, gamma = op.alpha, op.gamma
    return lambda x: gamma * nn.elu(x, alpha)


@rows.native("HardSigmoid", arithmetic="S")
@planned
def hard_sigmoid(op: Any, x: Array) -> Plan:
    """Composed (of a line and clip) for another line than jax's."""
    if (op.alpha, op.beta) == HARD and x.dtype != jnp.float64:
        function: Plan = nn.hard_sigmoid
        return function
    alpha, beta = op.alpha, op.beta
    return lambda x: jnp.clip(alpha * x + beta, 0, 1)


@rows.composed("ThresholdedRelu", arithmetic="F")
def thresholded_relu(op: Any, x: Array) -> Array:
    return jnp.where(x > op.alpha, x, 0)


@rows.composed("PRelu", arithmetic="S")
def prelu(op: Any, x: Array, slope: Array) -> Array:
    return jnp.where(x < 0, slope * x, x)
