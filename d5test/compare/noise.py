"""What is beyond the noise between runs, in metrics that never repeat to the digit.

The model is the two-way table of benchmarks and runs: the logarithm of a value is that of the
version, and an effect of the run that all of its benchmarks share (a load episode, a clock), and a
rest. Both variances come from runs of one version, the control arm: what differs there is not the
code. Rounds of one run share its episode and its memory layout and tell nothing (see
docs/compare.md); each run counts once, by its best round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log1p, nan, pi

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

BENCHMARK = 0.01
"""Benchmarks that are called worse on identical code, and as many that are called better."""
SUITE = 0.05
"""Suites of benchmarks in which identical code is called worse or better."""
POWER = 0.95
"""The share of changes as large as the detectable one that are found."""
Table = NDArray[np.float64]


@dataclass(frozen=True)
class Shift:
    """How far the new version is from the old one, in natural logarithms; above zero is worse.

    size        between the medians of the runs
    limit       beyond which it is called a change; infinite where no floor is known
    detectable  the least change that is found with probability `POWER`
    """

    size: float
    limit: float
    detectable: float


@dataclass(frozen=True)
class Floor:
    """What runs of one version differ by: variances, and the drift from one run to the next.

    run, run_freedom    of the effect that all benchmarks of a run share; a number
    rest, rest_freedom  of each benchmark, (b,); never below that of all benchmarks together
    drift               between the sides, had each benchmark gone on as it went in a side, (b,)
    """

    run: float
    run_freedom: int
    rest: Table
    rest_freedom: int
    drift: Table

    @property
    def variance(self) -> Table:
        """Of one run of each benchmark."""
        variance: Table = self.run + self.rest
        return variance

    @property
    def freedom(self) -> Table:
        """Degrees of freedom of the variance, by Welch (1947) and Satterthwaite (1946)."""
        parts = self.run**2 / max(self.run_freedom, 1) + self.rest**2 / max(self.rest_freedom, 1)
        whole = np.full(len(self.rest), float(self.run_freedom))
        freedom: Table = np.divide(self.variance**2, parts, out=whole, where=parts > 0)
        return freedom


def shifts(old: Table, new: Table, effect: float) -> list[Shift]:
    """The shift of each benchmark. `old` (b, m) and `new` (b, n): logarithms, larger is worse.

    NaN where a run has no value. A change below half of `effect` (0.05 is 5%) is never called one:
    a limit of half a slowdown is what finds that slowdown nearly always.

    Each benchmark is asked whether it is worse and whether it is better. All of these questions
    are one family of Holm's procedure: identical code is called worse *or* better in `SUITE` of
    suites. Raises FloatingPointError where a limit that runs tell is no finite number.
    """
    size = _median(new) - _median(old)
    floor = control(old, new)
    # One run alone may be the disturbed one, whatever is known of the other version's runs.
    known = np.minimum(_freedom(old), _freedom(new)) > 0
    # A difference of two single runs: runs that were made one after another share their drift, so
    # that more of them make the floor better known and not lower.
    scale = np.sqrt(2 * floor.variance)
    tests = int(np.count_nonzero(known & np.isfinite(size)))
    # Of the two questions the likelier one: the other's p is above a half, and never rejected.
    p = np.where(known, stdtr(floor.freedom, -np.abs(_over(size, scale))), nan)
    level = holm(p, 2 * tests)
    least = np.maximum(floor.drift, log1p(effect) / 2)
    limit = np.maximum(-stdtrit(floor.freedom, level) * scale, least)
    spread = np.sqrt(floor.variance * (_error(old) + _error(new)))
    detectable = limit + stdtrit(floor.freedom, POWER) * spread
    if not np.isfinite(np.stack([size, limit, detectable])[:, known]).all():
        raise FloatingPointError("a limit is no finite number")
    return [
        Shift(float(s), float(a) if k else inf, float(d) if k else inf)
        for s, a, d, k in zip(size, limit, detectable, known, strict=True)
    ]


def control(old: Table, new: Table) -> Floor:
    """The floor, from what is left of each side's runs when its mean is taken away."""
    sides = [_residuals(side) for side in (old, new)]
    rest = np.hstack(sides)
    own_freedom = _freedom(old) + _freedom(new)
    run_freedom = sum(max(int(_present(side).any(0).sum()) - 1, 0) for side in sides)
    common = _mean(rest, 0)
    run = float(np.nansum(common**2)) / max(run_freedom, 1)
    squares = np.nansum((rest - common) ** 2, axis=1)
    total = int(own_freedom.sum())
    rest_freedom = total - run_freedom
    variance = np.zeros(len(squares))
    if rest_freedom > 0:
        own = squares / np.maximum(own_freedom, 1) * (total / rest_freedom)
        variance = np.maximum(own, squares.sum() / rest_freedom)
    pace = np.maximum(_pace(old), _pace(new))
    return Floor(run, run_freedom, variance, rest_freedom, pace * (_count(old) + _count(new)) / 2)


def holm(p: Table, tests: int) -> Table:
    """The level at which each of so many tests is judged, (b,), by Holm (1979).

    `p` may lack some of them, which are never rejected.

    Chosen over a false discovery rate because a suite on identical code is to be red in 5% of
    runs, however its benchmarks depend on each other, and false alarms are to stay as rare beside
    a real regression.
    """
    levels = np.full(len(p), SUITE / max(tests, 1))
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]  # NaN comes last
    for rank, k in enumerate(order):
        levels[order[rank:]] = SUITE / (tests - rank)
        if p[k] > levels[k]:
            break
    return np.asarray(np.minimum(levels, BENCHMARK))


def _over(size: Table, scale: Table) -> Table:
    """Quotients; without any noise a shift of any size is infinitely many times the noise."""
    ends = np.where(size > 0, inf, np.where(size < 0, -inf, 0.0))
    quotients: Table = np.divide(size, scale, out=ends, where=scale > 0)
    return quotients


def _residuals(side: Table) -> Table:
    """What runs differ by from the mean of their side; NaN where there is one alone."""
    residuals: Table = np.where(_freedom(side)[:, None] > 0, side - _mean(side, 1)[:, None], nan)
    return residuals


def _pace(side: Table) -> Table:
    """The largest difference in a side, a run."""
    filled = np.where(_present(side), side, _median(side)[:, None])
    pace: Table = np.ptp(filled, axis=1) / np.maximum(_freedom(side), 1)
    return pace


def _present(side: Table) -> NDArray[np.bool_]:
    return ~np.isnan(side)


def _count(side: Table) -> Table:
    counts: Table = np.maximum(_present(side).sum(axis=1), 1).astype(np.float64)
    return counts


def _freedom(side: Table) -> Table:
    return _count(side) - 1


def _error(side: Table) -> Table:
    """The variance of a median over that of a run: pi / 2 times the mean's at most, if normal."""
    error: Table = np.where(_count(side) > 2, pi / 2, 1.0) / _count(side)
    return error


def _mean(table: Table, axis: int) -> Table:
    counts = np.maximum(np.count_nonzero(_present(table), axis=axis), 1)
    mean: Table = np.nansum(table, axis=axis) / counts
    return mean


def _median(side: Table) -> Table:
    """Of each row; every row has a value."""
    ordered, last = np.sort(side, axis=1), _freedom(side).astype(int)  # NaN comes last
    middle = np.stack([last // 2, (last + 1) // 2], axis=1)
    median: Table = np.take_along_axis(ordered, middle, axis=1).mean(axis=1)
    return median


def logarithms(rows: Sequence[Sequence[Sequence[float]]], *, higher: bool) -> Table:
    """The table of rows of runs of values, a column a value; larger is worse, NaN is missing."""
    widths = [max(map(len, runs)) for runs in zip(*rows, strict=True)]
    padded = [
        [v for run, width in zip(row, widths, strict=True) for v in [*run, *[nan] * width][:width]]
        for row in rows
    ]
    table = np.log(np.array(padded, dtype=np.float64))
    return -table if higher else table
