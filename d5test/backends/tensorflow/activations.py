"""Activations with attributes, or with slopes that are learned."""

from __future__ import annotations

from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.tensorflow.framework import tf

rows = Table()
SELU = (1.6732631921768188, 1.0507010221481323)
"""TensorFlow's alpha and gamma, as float32 has them."""


@rows.native("Elu")
@planned
def elu(op: Any, x: Any) -> Plan:
    """Composed (scaled where it is negative) with another alpha than 1."""
    return scaled(op.alpha)


def scaled(alpha: float) -> Plan:
    """The function elu with this alpha."""
    function: Plan = tf.nn.elu
    return function if alpha == 1 else lambda x: tf.where(x < 0, alpha * tf.nn.elu(x), x)


@rows.native("Selu")
@planned
def selu(op: Any, x: Any) -> Plan:
    """Composed (of elu) with other constants than TensorFlow's, of which float32 has ONNX's."""
    if (op.alpha, op.gamma) == SELU and x.dtype != tf.float64:
        function: Plan = tf.nn.selu
        return function
    one, gamma = scaled(op.alpha), op.gamma
    return lambda x: gamma * one(x)


@rows.composed("Celu")
def celu(op: Any, x: Any) -> Any:
    return tf.where(x < 0, op.alpha * tf.nn.elu(x / op.alpha), x)


@rows.composed("HardSigmoid", arithmetic="S")
def hard_sigmoid(op: Any, x: Any) -> Any:
    return tf.clip_by_value(op.alpha * x + op.beta, 0.0, 1.0)


@rows.composed("ThresholdedRelu", arithmetic="F")
def thresholded_relu(op: Any, x: Any) -> Any:
    return tf.where(x > op.alpha, x, tf.zeros_like(x))


@rows.composed("PRelu", arithmetic="S")
def prelu(op: Any, x: Any, slope: Any) -> Any:
    return tf.where(x < 0, slope * x, x)
