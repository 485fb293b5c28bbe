"""`--record-known=FILE`: the faults of a run, written as known failures.

Requirements: what is written can be read by `--known` at once; what only a person can say (owner,
reason, how narrow `where` can be) is marked.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pytest
from packaging.version import InvalidVersion, Version

from d5test.case import Case, Operator
from d5test.files import replace
from d5test.known.literal import case_from
from d5test.known.writing import table
from d5test.outcome.tally import Tally
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
    faults = [
        Recorded(tally, fault, case_from(fault["case"], operators))
        for tally, fault in faults_of(tallies_in(terminalreporter))
    ]
    found = rows(faults)
    path = config.invocation_params.dir / file
    try:
        replace(path, "\n".join([HEADER, *map(table, found)]))
    except OSError as error:
        terminalreporter.write_line(
            f"known failures not written to {path}: {error.strerror}", red=True
        )
    else:
        terminalreporter.write_line(f"{len(found)} known failures written to {path}")


@dataclass(frozen=True)
class Recorded:
    """A fault of a run, and its smallest case."""

    tally: Tally
    fault: Mapping[str, Any]
    case: Case

    @property
    def one(self) -> tuple[str, ...]:
        """What the cases of one fault have in common."""
        changed = repr(list(_changed(self.case.op)))
        return (self.tally.operator, self.tally.version, self.fault["kind"], changed)


def rows(faults: Iterable[Recorded]) -> list[dict[str, Any]]:
    """A row for each fault; its cases in other checks and dtypes belong to it."""
    found: dict[tuple[str, ...], list[Recorded]] = {}
    for fault in faults:
        found.setdefault(fault.one, []).append(fault)
    return [_row(alike) for alike in found.values()]


def _row(alike: Sequence[Recorded]) -> dict[str, Any]:
    first = alike[0]
    return {
        "reason": first.fault["text"],
        "operators": [first.tally.operator],
        "dtypes": list(dict.fromkeys(f.tally.dtype for f in alike)),
        "checks": list(dict.fromkeys(f.tally.check for f in alike)),
        "versions": _versions(first.tally.version),
        "owner": "unassigned",
        "link": "",
        "expires": dt.date.today() + dt.timedelta(days=DAYS),
        "where": dict(_changed(first.case.op)),
        "cases": [
            {"case": f.fault["case"], "checks": [f.tally.check], "dtypes": [f.tally.dtype]}
            for f in alike
        ],
    }


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
