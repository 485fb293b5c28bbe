"""Every operator under `torch.func.vmap`: a batched call equals single ones.

Of two samples one is judged; the other has the same values in other places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Forms, Row, Unsupported, sample_axes

MISSING = ("Batching rule not implemented", "We do not support batching operators")
"""What torch says of a function that it cannot batch."""


def of_rows(rows: Mapping[str, Row]) -> Forms:
    """The forms of all rows."""
    forms = Forms()
    for operator, row in rows.items():
        forms[operator] = {
            name: replace(row, call=partial(batched, row, varied), transformed=True)
            for name, varied in (("torch.func.vmap", False), ("torch.func.vmap(in_dims=)", True))
        }
    return forms


def batched(row: Row, varied: bool, op: Any, *inputs: Tensor | None) -> Any:
    """The second of two samples."""
    axes, out = sample_axes(row, inputs, varied)
    function = torch.func.vmap(lambda *xs: row.call(op, *xs), in_dims=axes, out_dims=out)
    samples = (
        x if axis is None else torch.stack((moved(x), x), axis)
        for x, axis in zip(inputs, axes, strict=True)
    )
    try:
        result = function(*samples)
    except RuntimeError as error:
        if any(words in str(error) for words in MISSING):
            raise Unsupported(str(error)) from None
        raise
    several = isinstance(result, Sequence)
    outputs = tuple(y.select(out, 1) for y in (result if several else (result,)))
    return outputs if several else outputs[0]


def moved(x: Tensor) -> Tensor:
    """The same values, each in its neighbour's place; indices in one along the same axis."""
    if not x.is_floating_point() and x.ndim > 1:
        return x.roll(1, 0)
    return x.detach().flatten().roll(1).view(x.shape)
