"""Why a backend is not asked for an operator: one line for the end of the run, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d5test.case import Operator

Reason = Callable[[type[Operator], Any, str], str]
"""Of an operator, what is known of a backend, and a dtype."""


def listed(operator: type[Operator], about: Any, dtype: str) -> str:
    """Why a backend cannot be asked for an operator in a dtype; empty if it can."""
    row = about.rows.get(operator.__name__)
    if row is None:
        return f"{about.name} has no row for {operator.__name__}"
    if dtype not in row.dtypes:
        return f"{operator.__name__} is not declared for {dtype} on {about.name}"
    return ""


def without_reference(operator: type[Operator]) -> str:
    """What is said of an operator whose values nobody can judge; empty if there is a reference."""
    if operator.forward is not Operator.forward:
        return ""
    return f"{operator.__name__} has no reference: its values were not judged"


def supported(operator: type[Operator], about: Any, dtype: str) -> str:
    """As `listed`, and there is a reference to judge values by."""
    return listed(operator, about, dtype) or without_reference(operator)


def with_gradient(operator: type[Operator], about: Any, dtype: str) -> str:
    """As `supported`, and both sides have a gradient."""
    row = about.rows.get(operator.__name__)
    if row is not None and row.gradient:
        return str(row.gradient)
    if operator.backward is Operator.backward:
        return without_reference(operator) or f"{operator.__name__} has no gradient"
    return supported(operator, about, dtype)
