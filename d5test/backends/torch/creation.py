"""Tensors that torch makes of shapes and numbers."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import UNDERIVED, Plan, Table, planned
from d5test.backends.torch.arguments import integers
from d5test.dtypes import NAMES

rows = Table()


@rows.native("EyeLike", gradient=UNDERIVED)
@planned
def eye(op: Any, x: Tensor) -> Plan:
    """Composed (of triangles) where it is not the main diagonal."""
    dtype = getattr(torch, NAMES[op.dtype]) if op.dtype else x.dtype
    made = {"dtype": dtype, "device": x.device}
    shape, k = x.shape, op.k
    if k == 0:
        return lambda x: torch.eye(*shape, **made)
    return lambda x: torch.ones(shape, **made).tril(k).triu(k)


@rows.native("ConstantOfShape", gradient=UNDERIVED, values=(0,))
@planned
def full(op: Any, shape: Tensor) -> Plan:
    name, _, (number,) = op.value
    sides, made = integers(shape), {"dtype": getattr(torch, name), "device": shape.device}
    return lambda shape: torch.full(sides, number, **made)


@rows.native("Range", gradient=UNDERIVED, values=(0, 1, 2))
@planned
def count(op: Any, *ends: Tensor) -> Plan:
    """It refuses a limit on the other side of the start, of which ONNX has nothing."""
    (start, limit, delta), first = (integers(x)[0] for x in ends), ends[0]
    limit = max(start, limit) if delta > 0 else min(start, limit)
    made = partial(torch.arange, start, limit, delta, dtype=first.dtype, device=first.device)
    return lambda *ends: made()
