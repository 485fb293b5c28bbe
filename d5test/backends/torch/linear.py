"""Products of matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Plan, Table, planned

rows = Table()
rows.elementwise({"MatMul": torch.matmul})


@rows.native("Gemm")
@planned
def gemm(op: Any, a: Tensor, b: Tensor, c: Tensor | None = None) -> Plan:
    multiply = product(op, c)
    left, right = bool(op.transA), bool(op.transB)
    if not (left or right):
        return multiply
    return lambda a, b, c=None: multiply(a.t() if left else a, b.t() if right else b, c)


def product(op: Any, c: Tensor | None) -> Plan:
    """The product of two matrices, scaled, and c added to it, scaled too."""
    alpha, beta = op.alpha, op.beta
    if c is None:
        if alpha == 1:
            return lambda a, b, c=None: torch.mm(a, b)
        return lambda a, b, c=None: torch.addmm(a.new_zeros(()), a, b, beta=0, alpha=alpha)
    if alpha == beta == 1:
        return lambda a, b, c: torch.addmm(c, a, b)
    return lambda a, b, c: torch.addmm(c, a, b, beta=beta, alpha=alpha)


# of three operands: an intermediate product is stored
@rows.native("Einsum", arithmetic="S")
def einsum(op: Any, *tensors: Tensor) -> Tensor:
    return torch.einsum(op.equation, *tensors)
