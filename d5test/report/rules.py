"""The two lists of twelve rules for honest figures, and what a report's own records say of each.

Requirements: every finding has its number, or says that the records cannot tell. What the page
itself does, whatever it shows, is kept or broken here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from d5test.compare.detail import Detail
from d5test.compare.entry import Entry
from d5test.metric import TIME
from d5test.record import KEY
from d5test.report.content import Report, details
from d5test.report.scaling import Collective, Step, collectives, steps

STATUS = ("breached", "untold", "kept", "none")
"""What comes first in the page. `none`: nothing of the kind is reported; `untold`: the records
do not say."""


@dataclass(frozen=True)
class Finding:
    """What is said of a rule."""

    status: str
    told: str


@dataclass(frozen=True)
class Evidence:
    """A report, with what the rules ask of it."""

    report: Report

    @cached_property
    def entries(self) -> list[tuple[Entry, Detail]]:
        """Of every run what was timed; a case of the corpus was not."""
        return [pair for pair in details(self.report.runs) if TIME.name in pair[0].samples]

    @cached_property
    def records(self) -> list[tuple[Entry, Detail]]:
        """Those with a record of d5test's."""
        return [pair for pair in self.entries if f"{KEY}.direction" in pair[1].about]

    @cached_property
    def steps(self) -> list[Step]:
        """Of distributed optimizers."""
        return steps(self.report)

    @cached_property
    def collectives(self) -> list[Collective]:
        """Calls of them."""
        return collectives(self.report)


@dataclass(frozen=True)
class Rule:
    """One of a list."""

    number: int
    title: str
    judge: Callable[[Evidence], Finding]


@dataclass(frozen=True)
class Rules:
    """A list, and where it stands."""

    title: str
    source: str
    rules: Sequence[Rule]

    def findings(self, evidence: Evidence) -> list[tuple[Rule, Finding]]:
        """Breaches first."""
        found = [(rule, rule.judge(evidence)) for rule in self.rules]
        return sorted(found, key=lambda pair: STATUS.index(pair[1].status))


def counted(broken: int, among: int, told: str) -> Finding:
    """Breached as often as `broken` of `among` says."""
    if not among:
        return Finding("none", "nothing of the kind is reported")
    return Finding("breached" if broken else "kept", f"{broken} of {among} {told}")


def untold(why: str) -> Callable[[Evidence], Finding]:
    """A rule of which the records say nothing."""
    return lambda evidence: Finding("untold", why)
