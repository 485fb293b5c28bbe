"""Distributed entries: steps of optimizers and collectives by the number of ranks.

Requirements: the base case and the absolute performance stand with every speedup, the ideal beside
it, and how uneven the ranks were; no ratio is averaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d5test.compare.detail import Detail, positive_at
from d5test.compare.entry import Entry
from d5test.compare.words import plain, quantity, short
from d5test.metric import BANDWIDTH, TIME
from d5test.report.content import Report, details

MOST = 400
"""Rows of a table."""


@dataclass(frozen=True)
class Step:
    """A step of a distributed optimizer on so many ranks, in one run.

    series   what one line of the drawing joins: side, run and name, in one mode
    name     optimizer, network, backend
    rate     samples per second, by the median step
    base     that of one rank; None where it was not measured in the run
    """

    side: str
    run: str
    series: str
    name: str
    mode: str
    ranks: int
    samples: float
    seconds: float
    low: float | None
    high: float | None
    rate: float
    base: float | None
    imbalance: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """Under `STEPS`."""
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f"{quantity(self.low, TIME)} to {quantity(self.high, TIME)}"
        return (
            f"{self.name}, {self.mode}",
            str(self.ranks),
            self.run,
            f"{self.samples:.6g}",
            quantity(self.seconds, TIME),
            interval,
            f"{self.rate:,.0f}",
            "no base case" if self.base is None else f"{self.base:,.0f}",
            "" if self.base is None else f"{self.rate / self.base:.3g} of {self.ranks}",
            "not known" if self.imbalance is None else f"{self.imbalance:.2f}",
        )


STEPS = (
    "step", "ranks", "run", "samples", "median step", "95% interval", "samples/s", "of one rank",
    "speedup of ideal", "load imbalance",
)  # fmt: skip


@dataclass(frozen=True)
class Collective:
    """A call of a collective: bytes a rank contributes, by the fastest call."""

    side: str
    name: str
    ranks: int
    contribution: float
    seconds: float
    imbalance: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """Under `COLLECTIVES`."""
        rate = quantity(self.contribution / self.seconds, BANDWIDTH)
        return (
            f"{self.side}: {self.name}",
            str(self.ranks),
            f"{self.contribution:.6g}",
            quantity(self.seconds, TIME),
            rate,
            "not known" if self.imbalance is None else f"{self.imbalance:.2f}",
        )


COLLECTIVES = ("call", "ranks", "bytes a rank", "fastest", "contributed", "imbalance of bytes")


def steps(report: Report) -> list[Step]:
    """Of all runs; what the table compares stands one below the other."""
    found = [s for side, run, _, detail in _each(report) for s in _step(side, run, detail)]
    return sorted(found, key=lambda step: (step.name, step.mode, step.ranks))


def collectives(report: Report) -> list[Collective]:
    """Likewise."""
    return [
        c for side, _, entry, detail in _each(report) for c in _collective(side, entry, detail)
    ]


def _each(report: Report) -> Iterator[tuple[str, str, Entry, Detail]]:
    for side, runs in (("old", report.old), ("new", report.new)):
        for k, run in enumerate(runs):
            said = side if len(runs) == 1 else f"{side} {k + 1}"
            for entry, detail in details([run]):
                yield side, said, entry, detail


def _step(side: str, run: str, detail: Detail) -> Iterator[Step]:
    about = detail.about
    texts = [
        str(about.get(f"scaling.{name}", "")).partition("@")[0]
        for name in ("optimizer", "network", "backend.name", "mode")
    ]
    *named, mode = texts
    name = plain(" ".join(filter(None, named)))
    numbers = [
        positive_at(about, f"scaling.{n}")
        for n in ("ranks", "samples", "median", "samples_per_second")
    ]
    ranks, samples, seconds, rate = numbers
    if (
        ranks is None
        or ranks < 1
        or samples is None
        or seconds is None
        or rate is None
        or not texts[0]
    ):
        return
    yield Step(
        side,
        run,
        f"{run}: {name}, {plain(mode)}",
        name,
        plain(mode),
        int(ranks),
        samples,
        seconds,
        positive_at(about, "scaling.median_interval_95.0"),
        positive_at(about, "scaling.median_interval_95.1"),
        rate,
        positive_at(about, "scaling.base.samples_per_second"),
        positive_at(about, "scaling.load_imbalance"),
    )


def _collective(side: str, entry: Entry, detail: Detail) -> Iterator[Collective]:
    about = detail.about
    ranks = positive_at(about, "communication.ranks")
    contribution = positive_at(about, "communication.contribution_bytes")
    if ranks is None or ranks < 1 or contribution is None:
        return
    seconds = min(entry.samples[TIME.name].values)
    imbalance = positive_at(about, "communication.imbalance")
    yield Collective(side, short(entry.name), int(ranks), contribution, seconds, imbalance)
