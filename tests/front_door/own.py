"""Functions of a framework that are an operator's own: a table, and what is tested of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import d5test
from d5test.case import Operator
from d5test.checks import Fault

WIDE = ("float64", "float32")


@dataclass(frozen=True)
class Own:
    """A function with the framework's own defaults, and the operator that it is.

    call     takes the operator's inputs; raises Unsupported for those that it has no way to take
    outputs  how many of the operator's outputs it returns; None: as many as the backend's row
    known    by dtype, why it is refused
    examples cases, more where it does few of those that are drawn
    """

    call: Callable[..., Any]
    like: Operator
    outputs: int | None = None
    dtypes: tuple[str, ...] = WIDE
    known: Mapping[str, str] = field(default_factory=dict)
    examples: int = 6


Table = Mapping[str, Own | tuple[Own, ...]]


def rows(table: Table) -> Iterator[Any]:
    """A parameter for each function and dtype."""
    for name, owns in table.items():
        for own in owns if isinstance(owns, tuple) else (owns,):
            for dtype in own.dtypes:
                yield pytest.param(own, dtype, id=f"{name}-{own.like!r}-{dtype}")


def require_accepted(own: Own, dtype: str, backend: str) -> None:
    """The front door accepts it, or refuses it where that is known."""
    try:
        d5test.check(
            own.call, like=own.like, dtypes=dtype, backend=backend, outputs=own.outputs,
            examples=100 if dtype in own.known else own.examples,
        )  # fmt: skip
    except Fault:
        if dtype not in own.known:
            raise
    else:
        assert dtype not in own.known, f"it is right: {own.known[dtype]}"


def unlisted(module: Any, table: Table, others: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Public functions of a module that no list has, and those listed that it does not have.

    `others` has why there is nothing to check, and the names of which that is true.
    """
    public = {
        name
        for name in dir(module)
        if not name.startswith("_")
        and callable(getattr(module, name))
        and not isinstance(getattr(module, name), type)
    }
    reasons = [name for names in others.values() for name in names.split()]
    assert len(reasons) == len({*reasons}), "a name has two reasons"
    listed = {name.partition(" ")[0] for name in table} | {*reasons}
    assert not {*table} & {*reasons}, "a name is in the table and has a reason"
    return public - listed, listed - public
