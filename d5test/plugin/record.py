"""`--record-known=FILE`: the faults of a run, written as known failures.

Requirements: what is written can be read by `--known` at once; what only a person can say (owner,
reason, how narrow `where` can be) is marked.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pytest
from packaging.version import InvalidVersion, Version

from d5test.case import Case, Operator
from d5test.files import replace
from d5test.known.reading import case_from
from d5test.known.writing import table
from d5test.outcome.tally import Tally
from d5test.plugin.selection import SELECTION
from d5test.plugin.summary import tallies_in

Recorded = tuple[Tally, Mapping[str, Any], Case]
"""A fault of a run, and its smallest case."""
DAYS = 90
"""How long a recorded failure stays known."""
HEADER = """\
# Known failures recorded from a run. Each needs an owner and a reason. Narrow each `where`: the
# cases that it covers are not judged. It was set to the attributes that the smallest failing case
# changed from their defaults; an empty table covers every case.
"""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the file: a row for each fault; its cases in other checks and dtypes belong to it."""
    config = terminalreporter.config
    file = config.getoption("--record-known")
    if not file:
        return
    operators = config.stash[SELECTION].every_operator
    alike: dict[tuple[str, ...], list[Recorded]] = {}
    for tally in tallies_in(terminalreporter):
        for fault in tally.faults:
            case = case_from(fault["case"], operators)
            changed = repr(list(_changed(case.op)))
            key = (tally.operator, tally.version, fault["kind"], changed)
            alike.setdefault(key, []).append((tally, fault, case))
    rows = [_row(recorded) for recorded in alike.values()]
    path = config.invocation_params.dir / file
    try:
        replace(path, "\n".join([HEADER, *map(table, rows)]))
    except OSError as error:
        terminalreporter.write_line(
            f"known failures not written to {path}: {error.strerror}", red=True
        )
    else:
        terminalreporter.write_line(f"{len(rows)} known failures written to {path}")


def _row(recorded: Sequence[Recorded]) -> dict[str, Any]:
    tally, fault, case = recorded[0]
    return {
        "reason": fault["text"],
        "operators": [tally.operator],
        "dtypes": list(dict.fromkeys(tally.dtype for tally, _, _ in recorded)),
        "checks": list(dict.fromkeys(tally.check for tally, _, _ in recorded)),
        "versions": _versions(tally.version),
        "owner": "unassigned",
        "link": "",
        "expires": dt.date.today() + dt.timedelta(days=DAYS),
        "where": dict(_changed(case.op)),
        "cases": [
            {"case": fault["case"], "checks": [tally.check], "dtypes": [tally.dtype]}
            for tally, fault, _ in recorded
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
