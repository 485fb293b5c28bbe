"""Comparisons of torch."""

import torch

from d5test.backends.base import Table

rows = Table()
rows.elementwise(
    {
        "Equal": torch.eq,
        "Greater": torch.gt,
        "GreaterOrEqual": torch.ge,
        "Less": torch.lt,
        "LessOrEqual": torch.le,
    },
    gradient="booleans have none",
)
