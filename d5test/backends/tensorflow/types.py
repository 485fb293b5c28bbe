"""Conversions between dtypes."""

from functools import partial
from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import tf
from d5test.dtypes import EIGHT_BITS, NAMES

rows = Table()


def cast(function: Plan, op: Any, x: Any) -> Plan:
    """By `function(x, dtype)`."""
    to = NAMES[op.to]
    require(op, to)
    return lambda x: function(x, to)


rows.native("Cast")(planned(partial(cast, tf.cast)))


@rows.native("CastLike")
@planned
def cast_like(op: Any, x: Any, like: Any) -> Plan:
    require(op, like.dtype.name)
    return lambda x, like: tf.cast(x, like.dtype)


def require(op: Any, to: str) -> None:
    """Raise `Unsupported` where ONNX has the largest number, and TensorFlow infinity or NaN."""
    if to in EIGHT_BITS and op.saturate:
        raise Unsupported(f"tf.cast does not saturate in {to}")


@rows.native("BitCast", gradient=UNDERIVED)
def bit_cast(op: Any, x: Any) -> Any:
    if x.dtype.name in EIGHT_BITS or NAMES[op.to] in EIGHT_BITS:
        raise Unsupported("tf.bitcast has no floating-point numbers of 8 bits")
    return tf.bitcast(x, NAMES[op.to])
