"""The reference operators, a module a family. `OPERATORS` has them by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from d5test.case import Operator
from d5test.reference.operators import (
    activations,
    arithmetic,
    attention,
    convolution,
    elementwise,
    linear,
    losses,
    movement,
    normalisation,
    pooling,
    recurrent,
    reductions,
    softmax,
    views,
)

__all__ = ["FAMILIES", "OPERATORS"]

FAMILIES = (
    elementwise,
    activations,
    arithmetic,
    reductions,
    softmax,
    losses,
    normalisation,
    linear,
    convolution,
    pooling,
    attention,
    recurrent,
    movement,
    views,
)
"""The modules whose `__all__` are operators."""

OPERATORS: Mapping[str, type[Operator]] = MappingProxyType(
    {name: getattr(family, name) for family in FAMILIES for name in family.__all__}
)
"""Operator name -> its class."""


def __getattr__(name: str) -> Any:
    """`from d5test.reference.operators import Softmax`."""
    if name in OPERATORS:
        return OPERATORS[name]
    raise AttributeError(f"no reference operator {name!r}; see OPERATORS for those that there are")
