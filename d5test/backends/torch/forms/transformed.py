"""Every operator under `torch.func.vmap`: a batched call equals single ones.

Of two samples one is judged; the other has the same values in other places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Forms, Row, Unsupported

MISSING = "Batching rule not implemented"
"""What torch says of a function that it cannot batch."""


def of_rows(rows: Mapping[str, Row]) -> Forms:
    """The forms of all rows."""
    forms = Forms()
    for operator, row in rows.items():
        forms[operator] = {"torch.func.vmap": replace(row, call=partial(batched, row))}
    return forms


def batched(row: Row, op: Any, *inputs: Tensor | None) -> Any:
    """The second of two samples; an input that is an argument, or of whole numbers, is shared."""
    own = [flows(row, i, x) for i, x in enumerate(inputs)]
    function = torch.func.vmap(
        lambda *xs: row.call(op, *xs), in_dims=tuple(0 if o else None for o in own)
    )
    samples = (torch.stack((moved(x), x)) if o else x for x, o in zip(inputs, own, strict=True))
    try:
        result = function(*samples)
    except RuntimeError as error:
        if MISSING in str(error):
            raise Unsupported(str(error)) from None
        raise
    return tuple(y[1] for y in result) if isinstance(result, Sequence) else result[1]


def flows(row: Row, i: int, x: Tensor | None) -> bool:
    """Whether an input is one of real numbers that are not an argument in torch."""
    return x is not None and i not in row.values and x.is_floating_point()


def moved(x: Tensor) -> Tensor:
    """The same values, each in its neighbour's place."""
    return x.detach().flatten().roll(1).view(x.shape)
