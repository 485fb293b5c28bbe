"""The reference operators, a module a family. `OPERATORS` has them by name."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from d5test.case import Operator

FAMILIES = tuple(
    import_module(f"{__name__}.{family}")
    for family in (
        "elementwise", "reductions", "normalisation", "linear", "windows", "attention",
        "recurrent", "movement", "indexing", "comparison", "logic",
        "creation", "selection", "quantisation", "types", "sampling", "signal",
        "classical", "updates", "random",
    )
)  # fmt: skip
"""The modules whose `__all__` are operators."""

OPERATORS: Mapping[str, type[Operator]] = {
    name: getattr(family, name) for family in FAMILIES for name in family.__all__
}
"""Operator name -> its class, in the order of the corpus."""

__all__ = ["FAMILIES", "OPERATORS", *OPERATORS]


def __getattr__(name: str) -> Any:
    """`from d5test.reference.operators import Softmax`."""
    if name in OPERATORS:
        return OPERATORS[name]
    raise AttributeError(f"no reference operator {name!r}; see OPERATORS for those that there are")
