"""What the machine was fit for: which slowdowns the noise between runs of one version hides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from d5test.compare.decision import Decision
from d5test.compare.reading import Run
from d5test.compare.words import plain
from d5test.metric import TIME
from d5test.report.content import Report, details

SHARES = {"half of the benchmarks": 0.5, "nine of ten": 0.9, "all": 1.0}
"""Of how many benchmarks a bound holds: the quantile that it is."""


@dataclass(frozen=True)
class Fitness:
    """In one sentence; the noise floor and the detectable slowdown by `SHARES`; other facts."""

    told: str
    floors: Sequence[tuple[str, str, str]] = ()
    facts: Sequence[tuple[str, str]] = ()


def fitness(report: Report) -> Fitness:
    """Of the machine on which the runs were made."""
    facts = list(_facts(report))
    if report.comparison is None:
        return Fitness("One version alone: what could have been found takes two.", facts=facts)
    times = [d for d in report.comparison.decisions if d.values.metric == TIME]
    known = [d for d in times if d.limit is not None and d.detectable is not None]
    if not known:
        why = (
            "it takes two runs of each version" if times else "nothing was timed in both versions"
        )
        return Fitness(f"No noise floor of times is known: {why}.", facts=facts)
    seen = sum(d.detectable is not None and d.detectable <= report.effect for d in known)
    return Fitness(
        f"A slowdown of {report.effect:.1%} would surely have been found in {seen} of "
        f"{len(times)} benchmarks.",
        list(_floors(known)),
        facts,
    )


def _floors(known: Sequence[Decision]) -> Iterator[tuple[str, str, str]]:
    limits, detectable = (
        [getattr(decision, name) for decision in known] for name in ("limit", "detectable")
    )
    for name, share in SHARES.items():
        # the smallest value that so many do not exceed: one that was there, not one between two
        a, b = (np.quantile(v, share, method="inverted_cdf") for v in (limits, detectable))
        yield name, f"{a:.1%}", f"{b:.1%}"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    sides = [side for side in (report.old, report.new) if side]
    yield "runs", " and ".join(str(len(side)) for side in sides)
    counts = (d.count for entry, d in details(report.runs) if TIME.name in entry.samples)
    yield "rounds a benchmark", _span(counts)
    for name in ("load", "preempted rounds", "usable cores"):
        said = [_said(side, name) for side in sides]
        if any(said):
            yield name, " and ".join(dict.fromkeys(text or "not known" for text in said))


def _said(side: Sequence[Run], name: str) -> str:
    return " | ".join(dict.fromkeys(plain(r.facts[name]) for r in side if name in r.facts))


def _span(counts: Iterator[int]) -> str:
    found = [count for count in counts if count]
    ends = dict.fromkeys(f"{end(found)}" for end in (min, max)) if found else ["not known"]
    return " to ".join(ends)
