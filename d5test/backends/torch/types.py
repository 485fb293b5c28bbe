"""Conversions between dtypes."""

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.dtypes import EIGHT_BITS, NAMES

rows = Table()
SATURATES = {"float8_e4m3fn": 1}
"""Formats of eight bits whose largest number torch gives beyond it; of others infinity or NaN."""


def require(op: Any, to: str) -> None:
    """Raise `Unsupported` where ONNX has another number beyond the largest one than torch."""
    own = SATURATES.get(to, 0)
    if not hasattr(torch, to):
        raise Unsupported(f"torch has no {to}")
    if to in EIGHT_BITS and op.saturate != own:
        raise Unsupported(f"torch {'saturates' if own else 'does not saturate'} in {to}")


@rows.native("Cast")
@planned
def cast(op: Any, x: Tensor) -> Plan:
    to = NAMES[op.to]
    require(op, to)
    dtype = getattr(torch, to)
    return lambda x: x.to(dtype)


@rows.native("CastLike")
@planned
def cast_like(op: Any, x: Tensor, like: Tensor) -> Plan:
    require(op, str(like.dtype).removeprefix("torch."))
    return lambda x, like: x.type_as(like)


@rows.native("BitCast", gradient=UNDERIVED)
def bit_cast(op: Any, x: Tensor) -> Tensor:
    return x.view(getattr(torch, NAMES[op.to]))
