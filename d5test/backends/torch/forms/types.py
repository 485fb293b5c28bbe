"""Forms of conversions: methods named after a dtype, `type`, and a copy into a tensor of it."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Forms, Plan, planned
from d5test.backends.torch.types import require
from d5test.dtypes import NAMES, NUMBERS

forms = Forms()
METHODS = {
    "float64": "double", "float32": "float", "float16": "half", "bfloat16": "bfloat16",
    "int64": "long", "int32": "int", "int16": "short", "int8": "char", "uint8": "byte",
    "bool": "bool",
}  # fmt: skip
"""Of dtypes that have one."""

for _to, _method in METHODS.items():
    _called = {f"Tensor.{_method}": getattr(Tensor, _method)}
    forms.same("Cast", _called, attributes={"to": (NUMBERS[_to],)})


def typed(function: Plan, op: Any, x: Tensor) -> Plan:
    """By `function(x, dtype)`."""
    require(op, NAMES[op.to])
    dtype = getattr(torch, NAMES[op.to])
    return lambda x: function(x, dtype)


def copied(x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty_like(x, dtype=dtype).copy_(x)


def as_tensor(x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.as_tensor(x, dtype=dtype)


for _name, _function in (
    ("Tensor.type", Tensor.type),
    ("Tensor.copy_", copied),
    ("torch.as_tensor", as_tensor),
):
    forms.add("Cast", _name)(planned(partial(typed, _function)))


@forms.add("CastLike", "Tensor.to(other)")
@planned
def to_other(op: Any, x: Tensor, like: Tensor) -> Plan:
    require(op, str(like.dtype).removeprefix("torch."))
    return lambda x, like: x.to(like)
