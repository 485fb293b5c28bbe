"""Known failures: rows that say what fails, where, since when, why, and who cares.

A row pins one case, which runs once as a test of its own and must still fail, and keeps drawing
away from the cases for which `where` holds (they are counted as known). It has a date on which it
expires. Requirements: a row that cannot be read is one line, with its file; nothing in it is code.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from d5test.case import Case, Operator
from d5test.plugin.literal import case_from
from d5test.plugin.where import holds, validate

TEXTS = ("check", "operator", "case", "reason", "owner", "link", "versions")
REQUIRED = ("check", "operator", "dtype", "case", "reason", "owner", "expires")


@dataclass(frozen=True)
class KnownFailure:
    """One row.

    dtypes     the dtypes under test
    versions   the framework's versions, as a PEP 440 specifier; empty: all
    backend    names of backends; empty: every backend that the file is read for
    device     words, one of which stands in the device's name (`AVX2`, say); empty: all devices
    where      conditions on cases, see `d5test.plugin.where`; `None`: the pinned case alone
    witnesses  what independent computations gave, or other cases that fail so: for the reader
    """

    check: str
    operator: str
    dtypes: tuple[str, ...]
    case: Case
    reason: str
    owner: str
    expires: dt.date
    source: str
    versions: str = ""
    link: str = ""
    backend: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    where: Mapping[str, Any] | None = None
    witnesses: tuple[str, ...] = field(default=())

    def speaks_of(self, name: str, version: str, device: str = "") -> bool:
        """Whether it is about this backend (under whatever interpreter), version and device."""
        if self.backend and name.partition("@")[0] not in self.backend:
            return False
        if self.device and not set(self.device) & set(re.findall(r"\w+", device)):
            return False
        try:
            return SpecifierSet(self.versions).contains(Version(version), prereleases=True)
        except InvalidVersion:
            return True

    def covers(self, case: Case) -> bool:
        """Whether a drawn case is this failure."""
        return case == self.case or (self.where is not None and holds(self.where, case))

    @property
    def expired(self) -> bool:
        """Whether somebody should have dealt with it by now."""
        return self.expires < dt.date.today()


def read(
    file: str | Path, operators: Mapping[str, type[Operator]], checks: Container[str]
) -> list[KnownFailure]:
    """The rows of a file; UsageError with one line if it cannot be read."""
    path = Path(file)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise pytest.UsageError(f"known failures {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"known failures {path}: {error}") from None
    rows = content.get("known", [])
    if set(content) - {"known"} or not isinstance(rows, list):
        raise pytest.UsageError(
            f"known failures {path}: expected [[known]] tables and nothing else"
        )
    found = []
    for number, row in enumerate(rows, 1):
        try:
            for check in _texts(row, "check") or ("",):
                one = {**row, "check": check}
                found.append(_row(one, operators, checks, f"{path}, row {number}"))
        except ValueError as error:
            raise pytest.UsageError(f"known failures {path}, row {number}: {error}") from None
    return found


def shipped(framework: str) -> Path:
    """The file of known failures that comes with the suites for this framework."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "suites"
    suites = inside if inside.is_dir() else package.parent / "suites"
    return suites / "known" / f"{framework}.toml"


def _row(
    row: Mapping[str, Any],
    operators: Mapping[str, type[Operator]],
    checks: Container[str],
    at: str,
) -> KnownFailure:
    _complete(row)
    operator = operators.get(row["operator"])
    if operator is None:
        raise ValueError(f"unknown operator {row['operator']!r}")
    if row["check"] not in checks:
        raise ValueError(f"unknown check {row['check']!r}")
    try:
        SpecifierSet(row.get("versions", ""))
    except InvalidSpecifier as error:
        raise ValueError(f"versions: {error}") from None
    where = row.get("where")
    if where is not None:
        if not isinstance(where, dict):
            raise ValueError("where should be a table of conditions")
        validate(where, operator)
    case, dtypes = case_from(row["case"], operators), _texts(row, "dtype")
    if type(case.op) is not operator or case.dtype not in dtypes:
        raise ValueError(f"the case is {case.op.name} in {case.dtype}, which the row is not about")
    return KnownFailure(
        check=row["check"],
        operator=row["operator"],
        dtypes=dtypes,
        case=case,
        reason=row["reason"],
        owner=row["owner"],
        expires=_date(row["expires"]),
        source=at,
        versions=row.get("versions", ""),
        link=row.get("link", ""),
        backend=_texts(row, "backend"),
        device=_texts(row, "device"),
        where=where,
        witnesses=_texts(row, "witnesses"),
    )


def _complete(row: Mapping[str, Any]) -> None:
    """Raise ValueError unless all that is required is there, and nothing unknown."""
    missing = [name for name in REQUIRED if not row.get(name)]
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing")
    allowed = {*TEXTS, *REQUIRED, "where", "witnesses", "backend", "device"}
    for name in row:
        if name not in allowed:
            raise ValueError(f"unknown key {name!r}; known: {', '.join(sorted(allowed))}")
        if name in TEXTS and not isinstance(row[name], str):
            raise ValueError(f"{name} should be a text")


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = row.get(name, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(entry, str) for entry in values):
        raise ValueError(f"{name} should be a list of texts")
    return tuple(values)


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    try:
        return dt.date.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"expires: expected a date as 2027-01-31, got {value!r}") from None
