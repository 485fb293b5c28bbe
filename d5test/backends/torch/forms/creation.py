"""Forms of tensors that are made of shapes and numbers: filled, and made beside another."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import UNDERIVED, Forms, Plan, planned
from d5test.backends.torch.arguments import integers

forms = Forms()


def filled(like: Tensor, sides: Any, number: float, dtype: torch.dtype) -> Tensor:
    return torch.empty(sides, dtype=dtype, device=like.device).fill_(number)


def full_like(like: Tensor, sides: Any, number: float, dtype: torch.dtype) -> Tensor:
    return torch.full_like(like.new_empty(()).expand(sides), number, dtype=dtype)


def new_full(like: Tensor, sides: Any, number: float, dtype: torch.dtype) -> Tensor:
    return like.new_full(sides, number, dtype=dtype)


def full(function: Plan, op: Any, shape: Tensor) -> Plan:
    """By `function(like, sides, number, dtype)`."""
    name, _, (number,) = op.value
    sides, dtype = integers(shape), getattr(torch, name)
    return lambda shape: function(shape, sides, number, dtype)


for _title, _function in (
    ("Tensor.fill_", filled),
    ("Tensor.new_full", new_full),
    ("torch.full_like", full_like),
):
    forms.add("ConstantOfShape", _title, values=(0,), gradient=UNDERIVED)(
        planned(partial(full, _function))
    )
