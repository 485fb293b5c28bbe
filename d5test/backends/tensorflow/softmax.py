"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from d5test.backends.base import Table
from d5test.backends.tensorflow.framework import tf

rows = Table()


@rows.native("Softmax", arithmetic="S")
def softmax(op: Any, x: Any) -> Any:
    return tf.nn.softmax(x, op.axis)


@rows.native("LogSoftmax", arithmetic="S")
def log_softmax(op: Any, x: Any) -> Any:
    return tf.nn.log_softmax(x, op.axis)
