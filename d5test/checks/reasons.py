"""Why a backend is not asked for an operator: an exception that is returned, or nothing."""

from __future__ import annotations

from collections.abc import Callable

from d5test.backends.base import Unsupported
from d5test.case import Operator
from d5test.client.messages import BackendInfo
from d5test.outcome.tally import Inapplicable

Why = Unsupported | Inapplicable | None
Reason = Callable[[type[Operator], BackendInfo, str], Why]
"""Of an operator, what is known of a backend, and a dtype."""


def listed(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """Why a backend cannot be asked for an operator in a dtype; nothing if it can."""
    row = about.rows.get(operator.__name__)
    if row is None:
        return Unsupported(f"{about.name} has no row for {operator.__name__}")
    if dtype not in row.dtypes:
        return Unsupported(f"{operator.__name__} is not declared for {dtype} on {about.name}")
    return None


def without_reference(operator: type[Operator]) -> Why:
    """What is said of an operator whose values nobody can judge; nothing if it has a reference."""
    if operator.forward is not Operator.forward:
        return None
    return Inapplicable(f"{operator.__name__} has no reference: its values were not judged")


def supported(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `listed`, and there is a reference to judge values by."""
    return listed(operator, about, dtype) or without_reference(operator)


def with_gradient(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and both sides have a gradient."""
    row = about.rows.get(operator.__name__)
    if row is not None and row.gradient:
        return Unsupported(row.gradient)
    if operator.backward is Operator.backward:
        return without_reference(operator) or Inapplicable(f"{operator.__name__} has no gradient")
    return supported(operator, about, dtype)
