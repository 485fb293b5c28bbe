"""`--record-known=FILE`: the faults of a run, written as known failures.

Requirements: what is written can be read by `--known` at once; what only a person can say (owner,
reason, how narrow `where` can be) is marked.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from packaging.version import InvalidVersion, Version

from d5test.case import Case, Operator
from d5test.outcome.tally import Tally
from d5test.plugin.literal import case_from
from d5test.plugin.selection import SELECTION
from d5test.plugin.summary import faults_of, tallies_in

DAYS = 90
"""How long a recorded failure stays known."""
HEADER = """\
# Known failures recorded from a run. Each needs an owner and a reason. Narrow each `where`: the
# cases that it covers are not judged. It was set to the attributes that the smallest failing case
# changed from their defaults; an empty table covers every case.
"""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the file."""
    config = terminalreporter.config
    file = config.getoption("--record-known")
    if not file:
        return
    operators = config.stash[SELECTION].every_operator
    found = [
        row(tally, fault, case_from(fault["case"], operators))
        for tally, fault in faults_of(tallies_in(terminalreporter))
    ]
    path = config.invocation_params.dir / file
    Path(path).write_text("\n".join([HEADER, *found]), encoding="utf-8", errors="backslashreplace")
    terminalreporter.write_line(f"{len(found)} known failures written to {path}")


def row(tally: Tally, fault: dict[str, Any], case: Case) -> str:
    """A `[[known]]` table."""
    expires = dt.date.today() + dt.timedelta(days=DAYS)
    entries = {
        "check": tally.check,
        "operator": tally.operator,
        "dtype": [tally.dtype],
        "versions": _versions(tally.version),
        "case": fault["case"],
        "reason": fault["text"],
        "owner": "unassigned",
        "link": "",
    }
    lines = [f"{name} = {_toml(value)}" for name, value in entries.items()]
    where = ", ".join(f"{name} = {_toml(value)}" for name, value in _changed(case.op))
    return "\n".join(["[[known]]", *lines, f"expires = {expires}", f"where = {{{where}}}", ""])


def _versions(version: str) -> str:
    try:
        release = Version(version).release
    except InvalidVersion:
        return ""
    return f"=={'.'.join(map(str, release[:2]))}.*"


def _changed(op: Operator) -> Iterator[tuple[str, Any]]:
    for field in fields(op):
        value = getattr(op, field.name)
        if value != field.default and value is not None:
            yield (field.name, value)


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, _plain(value)))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def _plain(values: Iterable[Any]) -> Iterator[Any]:
    return (value for value in values if value is not None)
