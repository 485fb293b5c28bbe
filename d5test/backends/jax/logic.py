"""Logic of jax."""

from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, planned
from d5test.backends.jax.framework import Array, jnp

rows = Table()
rows.elementwise(
    {
        "And": jnp.logical_and,
        "Or": jnp.logical_or,
        "Xor": jnp.logical_xor,
        "Not": jnp.logical_not,
        "BitwiseAnd": jnp.bitwise_and,
        "BitwiseOr": jnp.bitwise_or,
        "BitwiseXor": jnp.bitwise_xor,
        "BitwiseNot": jnp.bitwise_not,
        "IsNaN": jnp.isnan,
    },
    gradient=UNDERIVED,
)


@rows.native("BitShift", gradient=UNDERIVED)
@planned
def shift(op: Any, x: Array, y: Array) -> Plan:
    return jnp.left_shift if op.direction == "LEFT" else jnp.right_shift


@rows.native("IsInf", gradient=UNDERIVED)
@planned
def infinite(op: Any, x: Array) -> Plan:
    """Composed where no sign is asked for."""
    signs: dict[Any, Plan] = {(1, 1): jnp.isinf, (1, 0): jnp.isneginf, (0, 1): jnp.isposinf}
    return signs.get((op.detect_negative, op.detect_positive), lambda x: jnp.isinf(x) & False)
