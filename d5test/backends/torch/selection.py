"""What torch chooses by values."""

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import UNDERIVED, Table, Unsupported

rows = Table()


@rows.native("NonZero", gradient=UNDERIVED)
def nonzero(op: Any, x: Tensor) -> Tensor:
    return torch.nonzero(x).T


@rows.native("Unique", gradient=UNDERIVED, outputs=1)
def unique(op: Any, x: Tensor) -> Tensor:
    """It does not say where an element comes first."""
    if not op.sorted:
        raise Unsupported("torch.unique does not keep the order in which elements come first")
    values: Tensor = torch.unique(x, dim=op.axis)
    return values
