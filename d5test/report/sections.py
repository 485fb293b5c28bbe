"""Sections of the page: what the machine was fit for, what was judged, and how it scales.

Requirements: the base case and the absolute performance stand with every speedup, the ideal beside
it, and how uneven the ranks were; no ratio is averaged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from d5test.compare.entry import Entry
from d5test.compare.environment import span
from d5test.compare.output import plain, quantity, short
from d5test.compare.reading import Run
from d5test.metric import (
    ARITHMETIC,
    BANDWIDTH,
    CLASSES,
    RATIO,
    RIGHT,
    SHARE,
    TIME,
    Metric,
    allreduce_bandwidths,
)
from d5test.record import KEY
from d5test.report.content import Report, entries

MOST = 400
"""Rows of a table or of the map."""
SHARES = {"half of the benchmarks": 0.5, "nine of ten": 0.9, "all": 1.0}
"""Of how many benchmarks a bound holds: the quantile that it is."""
SHADES = (0.125, 0.25, 0.5, 1.0)
"""Where the heat map changes its shade: shares of the bar, each twice the one before."""
Where = tuple[str, str]
"""A backend and a dtype."""
Place = tuple[str, str, str]
"""An operator (of a network its name), a backend and a dtype."""


@dataclass(frozen=True)
class Fitness:
    """In one sentence; the noise floor and the detectable slowdown by `SHARES`; other facts."""

    text: str
    floors: Sequence[tuple[str, str, str]] = ()
    facts: Sequence[tuple[str, str]] = ()


def fitness(report: Report) -> Fitness:
    """Of the machine on which the runs were made."""
    facts = list(_facts(report))
    if report.comparison is None:
        return Fitness("One version alone: what could have been found takes two.", facts=facts)
    times = report.comparison.times
    known = [
        (d.limit, d.detectable) for d in times if d.limit is not None and d.detectable is not None
    ]
    if not known:
        why = (
            "it takes two runs of each version" if times else "nothing was timed in both versions"
        )
        return Fitness(f"No noise floor of times is known: {why}.", facts=facts)
    seen = sum(detectable <= report.effect for _, detectable in known)
    floors = []
    for name, share in SHARES.items():
        # the smallest value that so many do not exceed: one that was there, not one between two
        limit, detectable = np.quantile(known, share, axis=0, method="inverted_cdf")
        floors.append((name, f"{limit:.1%}", f"{detectable:.1%}"))
    return Fitness(
        f"A slowdown of {report.effect:.1%} would surely have been found in {seen} of "
        f"{len(times)} benchmarks.",
        floors,
        facts,
    )


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    sides = [side for side in (report.old, report.new) if side]
    yield "runs", " and ".join(str(len(side)) for side in sides)
    counts = (e.detail.count for e in entries(report.runs) if TIME.name in e.samples)
    yield "rounds a benchmark", span([count for count in counts if count]) or "not known"
    for name in ("load", "preempted rounds", "usable cores"):
        facts = [
            " | ".join(dict.fromkeys(plain(r.facts[name]) for r in side if name in r.facts))
            for side in sides
        ]
        if any(facts):
            yield name, " and ".join(dict.fromkeys(fact or "not known" for fact in facts))


@dataclass(frozen=True)
class Cell:
    """What was judged of one operator on one backend in one dtype.

    ratio      the largest error / bar; None where no output was judged
    benchmarks, judged, wrong   counts
    share      the least share of elements judged
    classes    arithmetic classes, tightest first
    lost       the old version has it, the new one has not
    """

    ratio: float | None = None
    worst: str = ""
    benchmarks: int = 0
    judged: int = 0
    wrong: int = 0
    share: float | None = None
    classes: Sequence[str] = ()
    lost: bool = False

    @property
    def shade(self) -> str:
        """How far from the bar: `0` is furthest, `wrong` beyond."""
        if self.wrong or (self.ratio is not None and self.ratio > 1):
            return "wrong"
        if self.ratio is None:
            return "lost" if self.lost else "unjudged"
        return str(sum(self.ratio > step for step in SHADES[:-1]))

    @property
    def text(self) -> str:
        """What stands in the map."""
        if self.wrong:
            return "wrong"
        if self.ratio is None:
            return "lost" if self.lost else "not judged"
        return f"{self.ratio:.2g}"


@dataclass(frozen=True)
class Coverage:
    """Rows of cells under columns; None where there is nothing. `hidden` rows are left out."""

    columns: Sequence[Where]
    rows: Sequence[tuple[str, Sequence[Cell | None]]]
    hidden: int


def coverage(report: Report) -> Coverage:
    """Of the version that is judged; what the old one had besides is lost."""
    after, before = _grouped(report.new), _grouped(report.old)
    cells = {place: _cell(group) for place, group in after.items()}
    cells |= {place: Cell(lost=True) for place in before if place not in after}
    columns = sorted({(backend, dtype) for _, backend, dtype in cells})
    names = sorted({operator for operator, _, _ in cells})
    rows = [(name, [cells.get((name, *column)) for column in columns]) for name in names[:MOST]]
    return Coverage(columns, rows, max(len(names) - MOST, 0))


def numerics(report: Report) -> list[tuple[Where, Cell]]:
    """The same of all operators together."""
    groups: dict[Where, list[Entry]] = {}
    for (_, backend, dtype), group in _grouped(report.new).items():
        groups.setdefault((backend, dtype), []).extend(group)
    return [(where, _cell(groups[where])) for where in sorted(groups)]


def _grouped(runs: Sequence[Run]) -> dict[Place, list[Entry]]:
    """The entries whose record says what they are of."""
    groups: dict[Place, list[Entry]] = {}
    for entry in entries(runs):
        about = entry.detail.about
        name = entry.operator or about.get(f"{KEY}.problem")
        backend, dtype = (about.get(f"{KEY}.{path}") for path in ("backend.name", "dtype"))
        if name and backend and dtype:
            place = plain(str(name)), plain(str(backend).partition("@")[0]), plain(str(dtype))
            groups.setdefault(place, []).append(entry)
    return groups


def _cell(group: Sequence[Entry]) -> Cell:
    rated = [(max(values), entry) for entry, values in _values(group, RATIO)]
    ratio, worst = max(rated, key=lambda pair: pair[0], default=(None, None))
    shares = [min(values) for _, values in _values(group, SHARE)]
    classes = {int(value) for _, values in _values(group, ARITHMETIC) for value in values}
    return Cell(
        ratio=ratio,
        worst=plain(str(worst.detail.about.get(f"{KEY}.problem", ""))) if worst else "",
        benchmarks=len({entry.name for entry in group}),
        judged=len({entry.name for entry, _ in _values(group, RIGHT)}),
        wrong=len({entry.name for entry in group if not entry.right}),
        share=min(shares, default=None),
        classes=[CLASSES[k] for k in sorted(classes)],
    )


def _values(group: Sequence[Entry], metric: Metric) -> list[tuple[Entry, Sequence[float]]]:
    samples = ((entry, entry.samples.get(metric.name)) for entry in group)
    return [(entry, sample.values) for entry, sample in samples if sample]


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
        rates = allreduce_bandwidths(self.contribution, self.ranks, self.seconds)
        return (
            f"{self.side}: {self.name}",
            str(self.ranks),
            f"{self.contribution:.6g}",
            quantity(self.seconds, TIME),
            *(quantity(rate, BANDWIDTH) for rate in rates),
            "not known" if self.imbalance is None else f"{self.imbalance:.2f}",
        )


COLLECTIVES = (
    "call", "ranks", "bytes a rank", "fastest", "algorithm bandwidth", "bus bandwidth",
    "imbalance of bytes",
)  # fmt: skip


def steps(report: Report) -> list[Step]:
    """Of all runs; what the table compares stands one below the other."""
    every = (_step(side, run, entry) for side, run, entry in _entries(report))
    return sorted(filter(None, every), key=lambda step: (step.name, step.mode, step.ranks))


def collectives(report: Report) -> list[Collective]:
    """Likewise."""
    return list(filter(None, (_collective(side, entry) for side, _, entry in _entries(report))))


def _entries(report: Report) -> Iterator[tuple[str, str, Entry]]:
    """Each with its side, and what its run is called."""
    for side, runs in (("old", report.old), ("new", report.new)):
        for k, run in enumerate(runs):
            name = side if len(runs) == 1 else f"{side} {k + 1}"
            for entry in run.entries.values():
                yield side, name, entry


def _step(side: str, run: str, entry: Entry) -> Step | None:
    detail = entry.detail
    optimizer, network, backend, mode = (
        str(detail.about.get(f"scaling.{name}", "")).partition("@")[0]
        for name in ("optimizer", "network", "backend.name", "mode")
    )
    ranks, samples, seconds, rate = (
        detail.positive(f"scaling.{name}")
        for name in ("ranks", "samples", "median", "samples_per_second")
    )
    if not (optimizer and ranks and ranks >= 1 and samples and seconds and rate):
        return None
    name = plain(" ".join(filter(None, (optimizer, network, backend))))
    return Step(
        side=side,
        run=run,
        series=f"{run}: {name}, {plain(mode)}",
        name=name,
        mode=plain(mode),
        ranks=int(ranks),
        samples=samples,
        seconds=seconds,
        low=detail.positive("scaling.median_interval_95.0"),
        high=detail.positive("scaling.median_interval_95.1"),
        rate=rate,
        base=detail.positive("scaling.base.samples_per_second"),
        imbalance=detail.positive("scaling.load_imbalance"),
    )


def _collective(side: str, entry: Entry) -> Collective | None:
    ranks, contribution, imbalance = (
        entry.detail.positive(f"communication.{name}")
        for name in ("ranks", "contribution_bytes", "imbalance")
    )
    if not (ranks and ranks >= 1 and contribution):
        return None
    seconds = min(entry.samples[TIME.name].values)
    return Collective(side, short(entry.name), int(ranks), contribution, seconds, imbalance)
