"""One report of a test, made of the reports of all ranks.

Requirements: a rank that failed by itself decides, one that failed because it waited for another
does not; each distinct failure is shown once, with the ranks that it happened to; what pytest and
others read from a report (its outcome, its crash message, its output) is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from d5test.plugin.outcomes import PROPERTY

KINDS = ("failed", "xfailed", "unexpected", "xpassed", "passed", "skipped", "freed")
"""Outcomes of a rank, the deciding ones first. `unexpected`: a strict xfail that passed. `freed`:
another rank left, and this one stopped waiting for it."""


OUTCOME: dict[str, Any] = {"unexpected": "failed", "xfailed": "skipped", "xpassed": "passed"}
"""What pytest calls them, where it has another word."""


@dataclass(frozen=True)
class Remark:
    """What a rank has to say of a phase of a test.

    kind      one of `KINDS`
    text      its failure as pytest shows it
    path, line, message   where it failed, and how, in a line
    failure   what makes it another failure than one at the same place
    skip      path, line and reason of a skip
    wasxfail  the reason of an xfail
    sections  its captured output
    tallies   what it counted, if it failed: the properties of its report
    left      whether it left the test before its end, and told the others
    """

    kind: str
    text: str = ""
    path: str = ""
    line: int = 0
    message: str = ""
    failure: str = ""
    skip: tuple[str, int, str] | None = None
    wasxfail: str | None = None
    sections: tuple[tuple[str, str], ...] = ()
    tallies: tuple[tuple[str, object], ...] = ()
    left: bool = False

    @classmethod
    def of(
        cls,
        report: pytest.TestReport,
        call: pytest.CallInfo[None],
        *,
        freed: bool,
        left: bool,
    ) -> Remark:
        """The remark of a rank with this report."""
        crash = getattr(report.longrepr, "reprcrash", None)
        wasxfail = getattr(report, "wasxfail", None)
        skip = report.longrepr if isinstance(report.longrepr, tuple) else None
        kind: str = report.outcome
        if report.failed and str(report.longrepr).startswith("[XPASS(strict)]"):
            kind = "unexpected"
        elif wasxfail is not None:
            kind = "xfailed" if report.skipped else "xpassed"
        return cls(
            kind="freed" if freed else kind,
            text="" if skip else report.longreprtext,
            path=os.path.relpath(crash.path) if crash else "",
            line=crash.lineno if crash else 0,
            message=crash.message if crash else report.longreprtext.strip().partition("\n")[0],
            failure=_failure(call, freed=freed),
            skip=(str(skip[0]), skip[1], skip[2]) if skip else None,
            wasxfail=wasxfail,
            sections=tuple(report.sections),
            tallies=tuple(p for p in report.user_properties if report.failed and p[0] == PROPERTY),
            left=left,
        )

    @classmethod
    def read(cls, message: dict[str, Any] | None) -> Remark:
        """What came from another rank; nothing is sent of what simply passed."""
        return cls(**message) if message else cls("passed")

    def message_to_others(self) -> dict[str, Any]:
        """As it goes to the others."""
        return asdict(self)

    @property
    def plain(self) -> bool:
        """Whether nothing needs to be said."""
        return self.kind == "passed"

    @property
    def where(self) -> str:
        """Where it failed, and how, in a line; empty if it did not."""
        first, _, _ = self.message.partition("\n")
        return f"{self.path}:{self.line}: {first}" if self.path else ""


def _failure(call: pytest.CallInfo[None], *, freed: bool) -> str:
    """The type of the exception, or its text where that is a sentence of ours."""
    if call.excinfo is None:
        return ""
    ours = freed or isinstance(call.excinfo.value, pytest.fail.Exception)
    return str(call.excinfo.value) if ours else call.excinfo.typename


def apply(remarks: Sequence[Remark], report: pytest.TestReport, rank: int) -> None:
    """Make this rank's report that of all ranks."""
    kind = min((remark.kind for remark in remarks), key=KINDS.index)
    if kind in ("failed", "freed"):
        _fail(remarks, report, rank)
    elif remarks[rank].kind != kind:
        first = next(remark for remark in remarks if remark.kind == kind)
        report.outcome = OUTCOME.get(kind, kind)
        report.longrepr = first.skip or first.text or None
        if first.wasxfail is not None:
            report.wasxfail = first.wasxfail
        elif hasattr(report, "wasxfail"):
            del report.wasxfail


def _fail(remarks: Sequence[Remark], report: pytest.TestReport, rank: int) -> None:
    size = len(remarks)
    failed = _groups(remarks, "failed")
    guilty = failed or _groups(remarks, "freed")
    first = remarks[guilty[0][0]]
    entries = [
        f"{_named(ranks)} of {size} failed:\n\n{remarks[ranks[0]].text.rstrip()}\n"
        for ranks in guilty
    ]
    for ranks in _groups(remarks, "freed") if failed else []:
        remark = remarks[ranks[0]]
        entries.append(f"{remark.path}:{remark.line}: {_named(ranks)} {remark.failure}\n")
    left = [r for r, remark in enumerate(remarks) if remark.kind == "skipped"]
    if left:
        entries.append(f"{_named(left)} skipped it: {(remarks[left[0]].skip or ('', 0, ''))[2]}\n")
    report.outcome = "failed"
    if hasattr(report, "wasxfail"):
        del report.wasxfail
    traceback = ReprTraceback([ReprEntryNative(["\n".join(entries)])], None, style="native")
    message = f"{_named(guilty[0])}: {first.message}"
    report.longrepr = ReprExceptionInfo(
        traceback, ReprFileLocation(first.path, first.line, message)
    )
    if rank not in guilty[0]:  # whose fault it is has counted it
        others = [each for each in report.user_properties if each[0] != PROPERTY]
        report.user_properties = [*others, *((name, value) for name, value in first.tallies)]
    for ranks in guilty:
        if rank not in ranks:
            sections = remarks[ranks[0]].sections
            report.sections += [(f"{name} (rank {ranks[0]})", text) for name, text in sections]


def _groups(remarks: Sequence[Remark], kind: str) -> list[list[int]]:
    """The ranks of this kind, together where they failed at the same place in the same way."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for rank, remark in enumerate(remarks):
        if remark.kind == kind:
            groups.setdefault((remark.path, remark.line, remark.failure), []).append(rank)
    return list(groups.values())


def _named(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 2-7`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], rank]
        else:
            spans.append([rank])
    words = ", ".join("-".join(map(str, span)) for span in spans)
    return f"rank{'s' if len(spans) > 1 or len(spans[0]) > 1 else ''} {words}"
