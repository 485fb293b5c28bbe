"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from d5test.backends.base import Table
from d5test.backends.jax.arguments import Array
from d5test.backends.jax.framework import nn

rows = Table()


@rows.native("Softmax")
def softmax(op: Any, x: Array) -> Array:
    return nn.softmax(x, op.axis)


# its derivative sums the upstream gradients as they are stored (`lax.reduce_sum` of float16)
@rows.native("LogSoftmax", arithmetic="S")
def log_softmax(op: Any, x: Array) -> Array:
    return nn.log_softmax(x, op.axis)
