"""Products of matrices."""

from __future__ import annotations

from typing import Any

from d5test.backends.base import Table
from d5test.backends.jax.arguments import Array
from d5test.backends.jax.framework import jnp

rows = Table()
rows.elementwise({"MatMul": jnp.matmul})


@rows.composed("Gemm", arithmetic="S")
def gemm(op: Any, a: Array, b: Array, c: Array | None = None) -> Array:
    y = op.alpha * jnp.matmul(a.T if op.transA else a, b.T if op.transB else b)
    return y if c is None else y + op.beta * c


# of three operands, or where axes of one are summed first: an intermediate result is stored
@rows.native("Einsum", arithmetic="S")
def einsum(op: Any, *xs: Array) -> Array:
    return jnp.einsum(op.equation, *xs)
