"""Names on the command line: a wrong one is pytest's usage error, one line and exit status 4."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from d5test.case import Operator
from d5test.names import BadName, chosen, installed, located


@contextmanager
def resolving() -> Iterator[None]:
    """Within, or in what is decorated, a name that stands for nothing is a UsageError."""
    try:
        yield
    except BadName as error:
        raise pytest.UsageError(str(error)) from None


def selected(
    what: str,
    asked: Iterable[str],
    known: Mapping[str, Any],
    accept: Callable[[str, Any], Any],
) -> dict[str, Any]:
    """What is asked for of one kind: ours, installed, or by place; all of the first two if none.

    `accept` makes of a name and what a user brings under it an entry, or raises `BadName`.
    """
    asked = tuple(asked)
    brought = {name: accept(name, located(what, name)) for name in asked if ":" in name}
    inside = [name for name in asked if name not in brought]
    entries: dict[str, Any] = {}
    if inside or not brought:
        entry = {name: accept(name, value) for name, value in installed(what).items()}
        entries = chosen(what, inside, {**known, **entry, **known})  # a name of ours stays ours
    return entries | {named(value, name): value for name, value in brought.items()}


def named(value: Any, name: str) -> str:
    """The name of what was brought: its own, or the last part of where it is."""
    own = getattr(value, "__name__", None) or getattr(value, "name", None)
    return own if isinstance(own, str) else name.rpartition(":")[2]


def operators(
    asked: Iterable[str], native: Mapping[str, type[Operator]] = MappingProxyType({})
) -> dict[str, type[Operator]]:
    """The operators that are asked for: ours, installed and native ones by name, or by place."""
    from d5test.reference.operators import OPERATORS

    known = {**OPERATORS, **native}
    asked = tuple(asked)
    for name in asked:
        if name not in known and (home := _unlisted(name)):
            raise pytest.UsageError(f"operator {name!r} is missing from __all__ of {home}")
    return selected("operator", asked, known, subclass_of("operator", Operator))


def _unlisted(name: str) -> str:
    """The module of ours that has an operator of this name and does not list it; or empty."""
    from d5test.reference.operators import FAMILIES

    for family in FAMILIES:
        operator = getattr(family, name, None)
        if isinstance(operator, type) and operator.__module__ == family.__name__:
            return family.__name__
    return ""


def subclass_of(what: str, kind: type) -> Callable[[str, Any], Any]:
    """An `accept` of `selected` that takes subclasses of a class."""

    def accept(name: str, value: Any) -> Any:
        if not (isinstance(value, type) and issubclass(value, kind)):
            raise BadName(
                f"{what} {name!r} is not a subclass of {kind.__module__}.{kind.__name__}"
            )
        return value

    return accept
