"""Products of matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.tensorflow.framework import tf

rows = Table()


@rows.native("MatMul", arithmetic="S")
@planned
def matmul(op: Any, a: Any, b: Any) -> Plan:
    row, column = a.ndim == 1, b.ndim == 1
    if not (row or column):
        function: Plan = tf.matmul
        return function

    def call(a: Any, b: Any) -> Any:
        y = tf.matmul(a[None] if row else a, b[:, None] if column else b)
        y = tf.squeeze(y, -1) if column else y
        return tf.squeeze(y, -2 + column) if row else y

    return call


@rows.composed("Gemm", arithmetic="S")
def gemm(op: Any, a: Any, b: Any, c: Any = None) -> Any:
    y = tf.matmul(a, b, transpose_a=bool(op.transA), transpose_b=bool(op.transB))
    y = y if op.alpha == 1 else op.alpha * y
    return y if c is None else y + (c if op.beta == 1 else op.beta * c)


@rows.native("Einsum", arithmetic="S")
@planned
def einsum(op: Any, *inputs: Any) -> Plan:
    return partial(tf.einsum, op.equation.replace(" ", ""))
