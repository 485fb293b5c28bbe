"""How TensorFlow names and pads the spatial axes of a convolution or a pooling."""

from __future__ import annotations

from typing import Any

from d5test.backends.base import Plan
from d5test.backends.tensorflow.framework import tf
from d5test.backends.windows import Ints, Pads

ORDER = (None, "NWC", "NHWC", "NDHWC")
"""Names of TensorFlow's own layouts. Without the name, eager gradients over 3 axes raise."""


def steps(op: Any, n: int) -> tuple[Ints, Ints]:
    """Strides and dilations of n axes."""
    strides, dilations = op.strides or (1,) * n, op.dilations or (1,) * n
    return tuple(strides), tuple(dilations)


def padding(pads: Pads, fill: float = 0) -> Plan:
    """A function that pads the spatial axes of x (n, ..., c)."""
    if not any(map(any, pads)):
        return lambda x: x
    sides = [(0, 0), *pads, (0, 0)]
    return lambda x: tf.pad(x, sides, constant_values=tf.constant(fill, x.dtype))
