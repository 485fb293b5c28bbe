"""What was judged: operators by backends and dtypes, each with its worst error / bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from d5test.compare.detail import Detail
from d5test.compare.entry import Entry
from d5test.compare.reading import Run
from d5test.compare.words import plain
from d5test.metric import ARITHMETIC, CLASSES, RIGHT, SHARE
from d5test.record import KEY
from d5test.report.content import Report, details, ratio

STEPS = (0.125, 0.25, 0.5, 1.0)
"""Where the heat map changes its shade: shares of the bar, each twice the one before."""
MOST = 400
"""Rows of the map."""
Where = tuple[str, str]
"""A backend and a dtype."""


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
        return str(sum(self.ratio > step for step in STEPS[:-1]))

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
    found, before = _grouped(report.new), _grouped(report.old)
    cells = {place: _cell(entries) for place, entries in found.items()}
    cells |= {place: Cell(lost=True) for place in before if place not in found}
    columns = sorted({(backend, dtype) for _, backend, dtype in cells})
    names = sorted({operator for operator, _, _ in cells})
    rows = [(name, [cells.get((name, *column)) for column in columns]) for name in names[:MOST]]
    return Coverage(columns, rows, max(len(names) - MOST, 0))


def numerics(report: Report) -> list[tuple[Where, Cell]]:
    """The same of all operators together."""
    found: dict[Where, list[tuple[Entry, Detail]]] = {}
    for (_, backend, dtype), entries in _grouped(report.new).items():
        found.setdefault((backend, dtype), []).extend(entries)
    return [(where, _cell(found[where])) for where in sorted(found)]


def _grouped(runs: Sequence[Run]) -> dict[tuple[str, str, str], list[tuple[Entry, Detail]]]:
    found: dict[tuple[str, str, str], list[tuple[Entry, Detail]]] = {}
    for entry, detail in details(runs):
        for place in _places(entry, detail):
            found.setdefault(place, []).append((entry, detail))
    return found


def _places(entry: Entry, detail: Detail) -> Iterator[tuple[str, str, str]]:
    """Operator (of a network its name), backend, dtype; nothing where no record says them."""
    about = detail.about
    name = entry.operator or about.get(f"{KEY}.problem")
    backend, dtype = (about.get(f"{KEY}.{path}") for path in ("backend.name", "dtype"))
    if name and backend and dtype:
        yield plain(str(name)), plain(str(backend).partition("@")[0]), plain(str(dtype))


def _cell(found: Sequence[tuple[Entry, Detail]]) -> Cell:
    ratios = [(value, detail) for entry, detail in found if (value := ratio(entry)) is not None]
    ratios.sort(key=lambda pair: -pair[0])
    shares = [min(e.samples[SHARE.name].values) for e, _ in found if SHARE.name in e.samples]
    classes = {int(v) for e, _ in found for v in _arithmetic(e)}
    return Cell(
        ratio=ratios[0][0] if ratios else None,
        worst=plain(str(ratios[0][1].about.get(f"{KEY}.problem", ""))) if ratios else "",
        benchmarks=len({entry.name for entry, _ in found}),
        judged=len({entry.name for entry, _ in found if RIGHT.name in entry.samples}),
        wrong=len({entry.name for entry, _ in found if not entry.right}),
        share=min(shares, default=None),
        classes=[CLASSES[k] for k in sorted(classes)],
    )


def _arithmetic(entry: Entry) -> Sequence[float]:
    sample = entry.samples.get(ARITHMETIC.name)
    return sample.values if sample else ()
