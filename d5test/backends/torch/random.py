"""Numbers that torch draws by chance. A seed makes a generator of its own, for each call."""

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import DRAWN, Table
from d5test.dtypes import NAMES

rows = Table()


def drawing(op: Any, x: Tensor | None = None) -> dict[str, Any]:
    """The generator of a seed; None is torch's own."""
    if op.seed is None:
        return {"generator": None}
    device = torch.get_default_device() if x is None else x.device
    return {"generator": torch.Generator(device).manual_seed(int(op.seed))}


def empty(op: Any, x: Tensor | None = None) -> Tensor:
    """A tensor to be filled."""
    dtype = getattr(torch, NAMES[op.dtype]) if op.dtype else None
    return torch.empty(op.shape, dtype=dtype) if x is None else torch.empty_like(x, dtype=dtype)


@rows.native("RandomNormal", "RandomNormalLike", gradient=DRAWN)
def normal(op: Any, x: Tensor | None = None) -> Tensor:
    return empty(op, x).normal_(op.mean, op.scale, **drawing(op, x))


@rows.native("RandomUniform", "RandomUniformLike", gradient=DRAWN)
def uniform(op: Any, x: Tensor | None = None) -> Tensor:
    return empty(op, x).uniform_(op.low, op.high, **drawing(op, x))


@rows.native("Bernoulli", gradient=DRAWN)
def bernoulli(op: Any, p: Tensor) -> Tensor:
    return empty(op, p).bernoulli_(p, **drawing(op, p))


@rows.composed("Multinomial", gradient=DRAWN)
def multinomial(op: Any, x: Tensor) -> Tensor:
    """Of probabilities, which torch need not be given with a sum of 1."""
    drawn = torch.multinomial(x.softmax(-1), op.sample_size, True, **drawing(op, x))
    return drawn.to(getattr(torch, NAMES[op.dtype]))
