"""Logic of torch."""

from typing import Any

import torch

from d5test.backends.base import UNDERIVED, Plan, Table, planned

rows = Table()
rows.elementwise(
    {
        "And": torch.logical_and,
        "Or": torch.logical_or,
        "Xor": torch.logical_xor,
        "Not": torch.logical_not,
        "BitwiseAnd": torch.bitwise_and,
        "BitwiseOr": torch.bitwise_or,
        "BitwiseXor": torch.bitwise_xor,
        "BitwiseNot": torch.bitwise_not,
        "IsNaN": torch.isnan,
    },
    gradient=UNDERIVED,
)


@rows.native("BitShift", gradient=UNDERIVED)
@planned
def shift(op: Any, x: torch.Tensor, y: torch.Tensor) -> Plan:
    left: Plan = torch.bitwise_left_shift
    return left if op.direction == "LEFT" else torch.bitwise_right_shift


@rows.native("IsInf", gradient=UNDERIVED)
@planned
def infinite(op: Any, x: torch.Tensor) -> Plan:
    """Composed where no sign is asked for."""
    signs: dict[Any, Plan] = {(1, 1): torch.isinf, (1, 0): torch.isneginf, (0, 1): torch.isposinf}
    return signs.get((op.detect_negative, op.detect_positive), lambda x: torch.isinf(x) & False)
