"""Forms of logic: Python's operators, methods, in place, and into a buffer."""

import operator
from functools import partial

import torch
from torch import Tensor

from d5test.backends.base import UNDERIVED, Forms
from d5test.backends.torch.forms.calls import in_place
from d5test.backends.torch.forms.comparison import written

forms = Forms()
for _operator, _name, _signs in (
    ("And", "logical_and", {"a & b": operator.and_}),
    ("Or", "logical_or", {"a | b": operator.or_}),
    ("Xor", "logical_xor", {"a ^ b": operator.xor}),
    ("BitwiseAnd", "bitwise_and", {"a & b": operator.and_}),
    ("BitwiseOr", "bitwise_or", {"a | b": operator.or_}),
    ("BitwiseXor", "bitwise_xor", {"a ^ b": operator.xor}),
    ("Not", "logical_not", {"~x": operator.invert}),
    ("BitwiseNot", "bitwise_not", {"~x": operator.invert}),
):
    forms.same(
        _operator,
        {
            **_signs,
            f"Tensor.{_name}": getattr(Tensor, _name),
            f"Tensor.{_name}_": in_place(getattr(Tensor, f"{_name}_")),
            f"torch.{_name}(out=)": partial(written, getattr(torch, _name)),
        },
        gradient=UNDERIVED,
    )
for _direction, _sign, _name in (("LEFT", "<<", "lshift"), ("RIGHT", ">>", "rshift")):
    _shift = f"bitwise_{_direction.lower()}_shift"
    forms.same(
        "BitShift",
        {
            f"x {_sign} y": getattr(operator, _name),
            f"Tensor.{_shift}": getattr(Tensor, _shift),
            f"Tensor.{_shift}_": in_place(getattr(Tensor, f"{_shift}_")),
        },
        gradient=UNDERIVED,
        attributes={"direction": (_direction,)},
    )
forms.same("IsNaN", {"Tensor.isnan": Tensor.isnan, "x != x": lambda x: x != x}, gradient=UNDERIVED)
