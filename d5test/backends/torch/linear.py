"""Products of matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Table

rows = Table()
rows.elementwise({"MatMul": torch.matmul})


@rows.native("Gemm")
def gemm(op: Any, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a, b = (a.t() if op.transA else a), (b.t() if op.transB else b)
    if c is not None:
        return torch.addmm(c, a, b, beta=op.beta, alpha=op.alpha)
    if op.alpha == 1:
        return torch.mm(a, b)
    return torch.addmm(a.new_zeros(()), a, b, beta=0, alpha=op.alpha)


# of three operands: an intermediate product is stored
@rows.native("Einsum", arithmetic="S")
def einsum(op: Any, *tensors: Tensor) -> Tensor:
    return torch.einsum(op.equation, *tensors)
