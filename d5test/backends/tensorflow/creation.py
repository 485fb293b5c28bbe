"""Tensors that TensorFlow makes of shapes and numbers."""

from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import numbers, tf
from d5test.dtypes import NAMES

rows = Table()


@rows.native("EyeLike", gradient=UNDERIVED)
@planned
def eye(op: Any, x: Any) -> Plan:
    if op.k:
        raise Unsupported("tf.eye has the main diagonal")
    shape, dtype = x.shape, NAMES.get(op.dtype, x.dtype)
    return lambda x: tf.eye(*shape, dtype=dtype)


@rows.native("ConstantOfShape", gradient=UNDERIVED, values=(0,))
@planned
def full(op: Any, shape: Any) -> Plan:
    name, _, (number,) = op.value
    return lambda shape: tf.fill(shape, tf.constant(number, name))


@rows.native("Range", gradient=UNDERIVED, values=(0, 1, 2))
@planned
def count(op: Any, *ends: Any) -> Plan:
    """It refuses a limit on the other side of the start, of which ONNX has nothing."""
    if ends[0].dtype == tf.int16:
        raise Unsupported("tf.range has no int16")
    start, limit, delta = (numbers(x)[0] for x in ends)
    limit, dtype = max(start, limit) if delta > 0 else min(start, limit), ends[0].dtype
    return lambda *ends: tf.range(start, limit, delta, dtype)


@rows.native("Shape", gradient=UNDERIVED)
def shape(op: Any, x: Any) -> Any:
    return tf.shape(x, tf.int64)[op.start : op.end]


@rows.native("Size", gradient=UNDERIVED)
def size(op: Any, x: Any) -> Any:
    return tf.size(x, tf.int64)
