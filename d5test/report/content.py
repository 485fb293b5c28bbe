"""What a page is made of: the runs of two versions, or of one, and what they were compared to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from d5test.compare import Comparison, Run
from d5test.compare.comparison import EFFECT
from d5test.compare.detail import NOTHING, Detail
from d5test.compare.entry import Entry
from d5test.compare.words import sentence, short
from d5test.metric import RATIO, RIGHT
from d5test.report.rule import Rule, Stored

ROUNDS = 256
"""Of each benchmark in each run, at most, that are read to be drawn."""
Paired = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Benchmark -> wall seconds a call of the old version and of the new one, round by round: the
k-th of both were measured one after the other, and their quotient is free of what both shared."""


@dataclass(frozen=True)
class Report:
    """Everything that the page says is computed from these.

    old     runs of the version compared to; none where one version is shown alone
    new     runs of the version that is judged
    effect  the slowdown that was to be found
    paired  rounds measured in turn, where a benchmark has any
    rule    what decides
    """

    old: Sequence[Run]
    new: Sequence[Run]
    effect: float = EFFECT
    paired: Paired = field(default_factory=dict)
    rule: Rule = field(default_factory=Stored)

    @cached_property
    def comparison(self) -> Comparison | None:
        """What is decided; None where there is nothing to compare with."""
        return self.rule.compared(self.old, self.new, self.effect) if self.old else None

    @property
    def runs(self) -> list[Run]:
        """Of both versions."""
        return [*self.old, *self.new]

    @property
    def verdict(self) -> str:
        """That of the comparison; of one version `wrong`, or `right` if nothing is known wrong."""
        if self.comparison is not None:
            return self.comparison.verdict
        return "wrong" if wrong(self.new) else "right"

    @property
    def headline(self) -> str:
        """The verdict and its reason, in one line."""
        if self.comparison is not None:
            return sentence(self.comparison)
        return alone(self.new)


def alone(runs: Sequence[Run]) -> str:
    """What is said of a version that is compared to none."""
    names = {name for run in runs for name in run.entries}
    judged = {e.name for e in entries(runs) if RIGHT.name in e.samples}
    found = wrong(runs)
    untimed = {name for run in runs for name in run.untimed}
    told = f"{len(names)} benchmarks, {len(judged)} with judged outputs, {len(untimed)} not timed"
    if found:
        return f"WRONG: the timed outputs of {len(found)} are wrong ({found[0]}). {told}."
    return f"NOT COMPARED: {told}; no output is known to be wrong."


def wrong(runs: Sequence[Run]) -> list[str]:
    """Short names of benchmarks whose timed outputs were wrong."""
    return list(dict.fromkeys(short(e.name) for e in entries(runs) if not e.right))


def entries(runs: Sequence[Run]) -> Iterator[Entry]:
    """Of all benchmarks of all runs."""
    for run in runs:
        yield from run.entries.values()


def details(runs: Sequence[Run]) -> Iterator[tuple[Entry, Detail]]:
    """Likewise, each with its detail."""
    for run in runs:
        for name, entry in run.entries.items():
            yield entry, run.details.get(name, NOTHING)


def ratio(entry: Entry) -> float | None:
    """Error / bar; None where nothing was judged."""
    sample = entry.samples.get(RATIO.name)
    return max(sample.values) if sample else None
