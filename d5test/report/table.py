"""The rows of the page's table: a metric of a benchmark each, worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log1p
from statistics import median

from d5test.compare import rows
from d5test.compare.decision import VERDICTS, Decision
from d5test.compare.entry import Entry
from d5test.compare.reading import Run
from d5test.compare.words import plain, quantity, short
from d5test.metric import RIGHT, Metric
from d5test.report.content import Report

ALONE = ("outputs", "value", "runs differ by", "what")
"""Columns where one version is shown alone."""
OUTPUTS = ("wrong", "unjudged", "right")
"""What its timed outputs were, worst first."""


@dataclass(frozen=True)
class Row:
    """A metric of a benchmark.

    was     the benchmark's name in the old version
    noise   the limit as a logarithm; None where there is none
    cells   texts under the columns; the first is the verdict, the last says what it is
    old     the old version's median, None where it has none; `new` likewise
    runs    what was compared, of each run of the old version and of the new one, as text
    """

    benchmark: str
    was: str
    metric: str
    verdict: str
    reason: str
    cells: Sequence[str]
    change: float | None = None
    noise: float | None = None
    limit: float | None = None
    detectable: float | None = None
    old: float | None = None
    new: float | None = None
    runs: Sequence[Sequence[str]] = ()


def columns(report: Report) -> Sequence[str]:
    """What stands above the cells."""
    return rows.COLUMNS if report.comparison else ALONE


def verdicts(report: Report) -> Sequence[str]:
    """Those that there are, worst first."""
    return VERDICTS if report.comparison else OUTPUTS


def every(report: Report) -> list[Row]:
    """All rows, worst first."""
    if report.comparison is not None:
        return [_decided(decision) for decision in report.comparison.decisions]
    return sorted(_alone(report.new), key=lambda row: OUTPUTS.index(row.verdict))


def first(report: Report) -> list[Row]:
    """Those that stand in the page without a script: what the other formats show."""
    if report.comparison is not None:
        return [_decided(decision) for decision in rows.decisions(report.comparison)]
    return every(report)[: rows.MOST]


def _decided(decision: Decision) -> Row:
    values = decision.values
    return Row(
        values.benchmark,
        values.was,
        plain(values.metric.name),
        decision.verdict,
        plain(decision.reason),
        rows.row(decision),
        decision.change,
        _noise(decision),
        decision.limit,
        decision.detectable,
        median(values.before) if values.before else None,
        median(values.after) if values.after else None,
        [[_values(run, values.metric) for run in side] for side in (values.old, values.new)],
    )


def _values(run: Sequence[float], metric: Metric) -> str:
    return ", ".join(quantity(value, metric) for value in run) or "none"


def _noise(decision: Decision) -> float | None:
    """The limit is relative to the old value: 1.25 times as long or, of rates, a fifth less."""
    limit = decision.limit
    if limit is None:
        return None
    if decision.values.metric.better == "lower":
        return log1p(limit)
    return -log1p(-limit) if limit < 1 else None


def _alone(runs: Sequence[Run]) -> Iterator[Row]:
    found: dict[str, list[Entry]] = {}
    for run in runs:
        for name, entry in run.entries.items():
            found.setdefault(name, []).append(entry)
    for name, several in found.items():
        known = {s.metric.name: s.metric for entry in several for s in entry.samples.values()}
        for metric in known.values():
            if metric.name != RIGHT.name:
                yield _measured(name, metric, several)


def _measured(name: str, metric: Metric, several: Sequence[Entry]) -> Row:
    found = [e.samples[metric.name].values for e in several if metric.name in e.samples]
    values = [value for run in found for value in run]
    typical, spread = median(values), max(values) - min(values)
    differ = f"{spread / abs(typical):.1%}" if len(values) > 1 and typical else ""
    judged = all(RIGHT.name in entry.samples for entry in several)
    verdict = "wrong" if not all(e.right for e in several) else "right" if judged else "unjudged"
    what = f"{plain(metric.name)} of {short(name)}"
    cells = (verdict, quantity(typical, metric), differ, what)
    return Row(
        name, name, plain(metric.name), verdict, "", cells, new=typical,
        runs=[[], [_values(run, metric) for run in found]],
    )  # fmt: skip
