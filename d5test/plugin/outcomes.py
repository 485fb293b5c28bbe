"""What came of the cases drawn for one cell, as it travels in a test's report.

Requirements: plain Python values only, so that it survives xdist and JUnit; everything that the
summary says is in here, since the process that sums up is not the one that ran.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pytest

from d5test.accuracy import Accuracy, Grade
from d5test.outcome.assessment import Conclusion
from d5test.outcome.tally import Tally

PROPERTY = "d5test"
"""The name of the entry in a report's `user_properties`."""

UNCONFIRMED = "d5test-unconfirmed"
"""Likewise, of a test whose known failure is gone, expired, or worse: what it says of it."""

ARITHMETICS = ("F", "P", "S")
"""The classes of low-precision arithmetic, tightest first."""


def attach(node: Any, tallies: Iterable[Tally]) -> None:
    """Write tallies where the reports of this test, an item or a report, carry them."""
    empty = Tally("", "", "", "")
    packed = [
        {k: v for k, v in asdict(tally).items() if v != getattr(empty, k)} for tally in tallies
    ]
    node.user_properties.append((PROPERTY, json.dumps(packed)))


def end(conclusion: Conclusion) -> None:
    """End the running test as its conclusion says."""
    if conclusion.status in ("failed", "untested"):
        raise pytest.fail.Exception(conclusion.text, pytrace=False) from None
    if conclusion.status == "known":
        raise pytest.xfail.Exception(conclusion.text) from None
    if conclusion.status == "skipped":
        raise pytest.skip.Exception(conclusion.text) from None


def tallies_of(reports: Iterable[Any]) -> Iterator[Tally]:
    """The tallies that these reports carry, each once: a test has a report for each phase."""
    for report in reports:
        when = getattr(report, "when", None)
        if when == "call" or (when == "setup" and not report.passed):
            for name, value in report.user_properties:
                if name == PROPERTY:
                    yield from (_unpack(entry) for entry in json.loads(str(value)))


def carried(terminalreporter: pytest.TerminalReporter, name: str, *ended: str) -> list[Any]:
    """What the calls of tests carry under a name: of those that `ended` so, or of all."""
    stats = terminalreporter.stats
    return [
        value
        for outcome in ended or stats
        for report in stats.get(outcome, [])
        if getattr(report, "when", None) == "call"
        for key, value in report.user_properties
        if key == name
    ]


def _unpack(entry: Mapping[str, Any]) -> Tally:
    accuracy = {k: Accuracy(**_tupled(a)) for k, a in entry.get("accuracy", {}).items()}
    grades = {k: Grade(**_tupled(g)) for k, g in entry.get("grades", {}).items()}
    names = {"backend": "", "check": "", "operator": "", "dtype": ""}
    return Tally(**{**names, **entry, "accuracy": accuracy, "grades": grades})


def _tupled(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists."""
    return {**values, "at": tuple(values["at"])}
