"""Functions of a framework that are an operator's own: a table, and what is tested of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import d5test
from d5test import front_door
from d5test.case import FLOATS, Case, Operator
from d5test.checks import CHECKS, Fault

WIDE = ("float64", "float32")


@dataclass(frozen=True)
class Known:
    """Why a function is refused, and a case of a check that it fails."""

    reason: str
    check: str
    case: Case


@dataclass(frozen=True)
class Own:
    """A function with the framework's own defaults, and the operator that it is.

    call     takes the operator's inputs; raises Unsupported for those that it has no way to take
    outputs  how many of the operator's outputs it returns; None: as many as the backend's row
    dtypes   those that the framework has for it
    known    by dtype, where it is refused: there that case is all that is asked
    examples cases, more where it does few of those that are drawn
    """

    call: Callable[..., Any]
    like: Operator
    outputs: int | None = None
    dtypes: tuple[str, ...] = FLOATS
    known: Mapping[str, Known] = field(default_factory=dict)
    examples: int = 6


Table = Mapping[str, Own | tuple[Own, ...]]


def rows(table: Table, dtypes: tuple[str, ...] = WIDE, nightly: tuple[str, ...] = ()) -> list[Any]:
    """A parameter for each function and each of `dtypes` that it has; some are `nightly`."""
    long = pytest.mark.nightly
    return [
        pytest.param(
            own, dtype, id=f"{name}-{own.like!r}-{dtype}", marks=long if dtype in nightly else ()
        )
        for name, owns in table.items()
        for own in (owns if isinstance(owns, tuple) else (owns,))
        for dtype in dtypes
        if dtype in own.dtypes
    ]


def require_accepted(own: Own, dtype: str, backend: str) -> None:
    """The front door accepts it, or refuses it where that is known."""
    known = own.known.get(dtype)
    if known is None:
        d5test.check(
            own.call, like=own.like, dtypes=dtype, backend=backend, outputs=own.outputs,
            examples=own.examples,
        )  # fmt: skip
        return
    client = front_door._client(
        own.call, own.like, front_door._tested(backend, "cpu", None), own.outputs, (dtype,)
    )
    with pytest.raises(Fault):
        CHECKS[known.check].run(client, known.case)


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
