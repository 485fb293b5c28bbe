"""Forms of comparisons: Python's operators, methods, and into a buffer."""

import operator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Forms
from d5test.backends.torch.comparison import rows

forms = Forms()


def written(function: Any, *inputs: Tensor) -> Tensor:
    """Into a buffer of booleans or integers, all of them wrong."""
    right = function(*inputs)
    out = ~right
    function(*inputs, out=out)
    return out


for _operator, _sign, _name in (
    ("Equal", "==", "eq"), ("Greater", ">", "gt"), ("GreaterOrEqual", ">=", "ge"),
    ("Less", "<", "lt"), ("LessOrEqual", "<=", "le"),
):  # fmt: skip
    forms.same(
        _operator,
        {
            f"a {_sign} b": getattr(operator, _name),
            f"Tensor.{_name}": getattr(Tensor, _name),
            f"torch.{_name}(out=)": partial(written, getattr(torch, _name)),
        },
        gradient=rows[_operator].gradient,
    )
