"""Conversions between dtypes."""

from functools import partial
from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.jax.framework import Array, lax
from d5test.dtypes import EIGHT_BITS, NAMES

rows = Table()


def cast(function: Plan, op: Any, x: Array) -> Plan:
    """By `function(x, dtype)`."""
    to = NAMES[op.to]
    require(op, to)
    return lambda x: function(x, to)


rows.native("Cast", arithmetic="F")(planned(partial(cast, lax.convert_element_type)))


@rows.native("CastLike", arithmetic="F")
@planned
def cast_like(op: Any, x: Array, like: Array) -> Plan:
    require(op, like.dtype.name)
    return lambda x, like: x.astype(like.dtype)


def require(op: Any, to: str) -> None:
    """Raise `Unsupported` where ONNX has the largest number, and XLA infinity or NaN."""
    if to in EIGHT_BITS and op.saturate:
        raise Unsupported(f"XLA does not saturate in {to}")


@rows.native("BitCast", gradient=UNDERIVED, arithmetic="F")
def bit_cast(op: Any, x: Array) -> Array:
    return lax.bitcast_convert_type(x, NAMES[op.to])
