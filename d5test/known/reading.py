"""Rows of known failures from a file.

Requirements: nothing in a file is code; whatever is wrong with one is found when it is read, and
is one line with the file, the row, and what to write instead.
"""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from d5test.case import FLOATS, Operator
from d5test.files import folder_of_suites
from d5test.known.failure import KnownFailure, Pinned, in_dtype
from d5test.known.literal import case_from
from d5test.known.where import validate
from d5test.names import hint
from d5test.numerics.arithmetic import ErrorModel, format_of
from d5test.numerics.elementary import TABLE
from d5test.reference.formulas import FORMULAS

LARGEST = 4 * 2**20
"""Bytes of a file that is read at all."""
TEXTS = ("reason", "owner", "link", "versions", "raises", "extent", "reproducer", "prints")
LISTS = ("operators", "dtypes", "checks", "backends", "devices", "witnesses")
REQUIRED = ("reason", "operators", "dtypes", "checks", "cases", "owner", "expires")
KEYS = (*TEXTS, *LISTS, "cases", "expires", "where", "model")
PINNED = ("case", "checks", "dtypes")
FUNCTIONS = tuple(ufunc.__name__ for ufunc in TABLE)


class Unreadable(ValueError):
    """A file that cannot be read; the text is one line."""


def read(
    file: str | Path, operators: Mapping[str, type[Operator]], checks: Mapping[str, Any]
) -> list[KnownFailure]:
    """The rows of a file. Raises `Unreadable`."""
    path = Path(file)
    content = _content(path)
    rows = content.get("known", [])
    if set(content) - {"known", "preamble"} or not isinstance(rows, list):
        raise Unreadable(f"known failures {path}: expected [[known]] tables and nothing else")
    found = []
    for number, row in enumerate(rows, 1):
        at = f"{path}, row {number}"
        try:
            found.append(_row(row, operators, checks, at))
        except ValueError as error:
            raise Unreadable(f"known failures {at}: {' '.join(str(error).split())}") from None
    return found


def shipped(framework: str) -> Path:
    """The file of known failures that comes with the suites for this framework."""
    return folder_of_suites() / "known" / f"{framework}.toml"


def shipped_files(checks: Mapping[str, Any]) -> dict[str, tuple[str, list[KnownFailure]]]:
    """By framework, what comes with the suites: what its reproducers begin with, and the rows."""
    from d5test.reference.operators import OPERATORS

    return {
        path.stem: (str(_content(path).get("preamble", "")), read(path, OPERATORS, checks))
        for path in sorted(shipped("").parent.glob("*.toml"))
    }


def _content(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise Unreadable(f"known failures {path}: larger than {LARGEST >> 20} MiB")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise Unreadable(f"known failures {path}: {error.strerror}") from None
    except RecursionError:
        raise Unreadable(f"known failures {path}: brackets are nested too deeply") from None
    except ValueError as error:  # invalid TOML, invalid UTF-8, a number with too many digits
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"known failures {path}: {' '.join(str(error).split())}") from None


def _row(
    row: Any, operators: Mapping[str, type[Operator]], checks: Mapping[str, Any], at: str
) -> KnownFailure:
    if not isinstance(row, dict):
        raise ValueError(f"expected a table, [[known]], not {row!r:.60}")
    _only("key", row, KEYS)
    for name in REQUIRED:
        if not row.get(name):
            raise ValueError(f"{name} is missing")
    texts: dict[str, Any] = {name: _text(row, name) for name in TEXTS}
    lists: dict[str, Any] = {name: _texts(row, name) for name in LISTS}
    _only("operator", lists["operators"], operators)
    _only("dtype", lists["dtypes"], FLOATS)
    _only("check", lists["checks"], checks)
    try:
        SpecifierSet(texts["versions"])
    except InvalidSpecifier as error:
        raise ValueError(f"versions: {error}") from None
    where = row.get("where")
    if where is not None:
        if not isinstance(where, dict):
            raise ValueError("where: expected a table of conditions, { axis = 0 }")
        for name in lists["operators"]:
            validate(where, operators[name])
    return KnownFailure(
        **texts,
        **lists,
        pinned=tuple(_pinned(row["cases"], lists, operators, checks)),
        expires=_date(row["expires"]),
        source=at,
        where=where,
        model=_model(row, lists["operators"], operators) if "model" in row else None,
    )


def _pinned(
    cases: Any,
    row: Mapping[str, tuple[str, ...]],
    operators: Mapping[str, type[Operator]],
    checks: Mapping[str, Any],
) -> Iterable[Pinned]:
    """The cases, each in the dtypes and for the checks that it names, or else the row."""
    if not isinstance(cases, list):
        raise ValueError('cases: expected a list, ["Case(...)"]')
    found = []
    for entry in cases:
        given = {"case": entry} if isinstance(entry, str) else entry
        if not isinstance(given, dict):
            raise ValueError(f'cases: expected "Case(...)", not {entry!r:.60}')
        _only("key of a case", given, PINNED)
        case = case_from(_text(given, "case"), operators)
        if case.op.name not in row["operators"]:
            raise ValueError(f"the case is of {case.op.name}, which operators does not have")
        for name in ("checks", "dtypes"):
            _only(f"one of the row's {name}", _texts(given, name), row[name])
        asked = _texts(given, "checks") or row["checks"]
        wanted = _texts(given, "dtypes") or row["dtypes"]
        made = [
            Pinned(check, in_dtype(case, dtype))
            for check in asked
            for dtype in wanted
            if dtype in checks[check].dtypes
        ]
        if not made:
            raise ValueError(f"{', '.join(asked)} does not ask for {', '.join(wanted)}")
        found += made
    for check in row["checks"]:
        if all(pinned.check != check for pinned in found):
            raise ValueError(f"no case is pinned for {check}: add one, or leave {check} out")
    return found


def _model(
    row: Mapping[str, Any], names: Iterable[str], operators: Mapping[str, type[Operator]]
) -> ErrorModel:
    given = row["model"]
    if not isinstance(given, dict) or not given:
        raise ValueError('model: expected a table, { arithmetic = "float32" }')
    _only("key of model", given, ("arithmetic", "formula", "ulps", "absolute"))
    for name in ("ulps", "absolute"):
        amounts = given.get(name, {})
        if not isinstance(amounts, dict):
            raise ValueError(f"model: {name} should be a table, {{ exp = 8 }}")
        _only("elementary function", amounts, FUNCTIONS)
        for function, amount in amounts.items():
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not number or not 0 <= amount < math.inf:
                raise ValueError(f"model: {name} of {function}: expected ULPs, not {amount!r:.60}")
    arithmetic, formula = _text(given, "arithmetic"), _text(given, "formula")
    if arithmetic:
        _only("arithmetic", [arithmetic], FLOATS)
        format_of(arithmetic)
    if formula:
        _only("formula", [formula], FORMULAS)
        for name in names:
            if operators[name] not in FORMULAS[formula]:
                raise ValueError(f"model: {formula!r} is no formula of {name}")
    return ErrorModel(
        row["reason"], arithmetic, given.get("ulps", {}), given.get("absolute", {}), formula
    )


def _only(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for the first name that is not known, with what was probably meant."""
    known = list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r:.60}: {hint(str(name), known)}")


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected a text, not {value!r:.60}")
    return value


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = row.get(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError(f'{name}: expected a list of texts, ["..."], not {value!r:.60}')
    return tuple(value)


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    raise ValueError(f"expires: expected a date, 2027-01-31, not {value!r:.60}")
