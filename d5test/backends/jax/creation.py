"""Tensors that jax makes of shapes and numbers."""

from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, planned
from d5test.backends.jax.framework import Array, integers, jnp
from d5test.dtypes import NAMES

rows = Table()


@rows.native("EyeLike", gradient=UNDERIVED)
@planned
def eye(op: Any, x: Array) -> Plan:
    (n, m), k, dtype = x.shape, op.k, NAMES.get(op.dtype, x.dtype)
    return lambda x: jnp.eye(n, m, k, dtype)


@rows.native("ConstantOfShape", gradient=UNDERIVED, values=(0,))
@planned
def full(op: Any, shape: Array) -> Plan:
    name, _, (number,) = op.value
    sides = integers(shape)
    return lambda shape: jnp.full(sides, number, name)


@rows.native("Range", gradient=UNDERIVED, values=(0, 1, 2))
@planned
def count(op: Any, *ends: Array) -> Plan:
    (start, limit, delta), dtype = (integers(x)[0] for x in ends), ends[0].dtype
    return lambda *ends: jnp.arange(start, limit, delta, dtype)
