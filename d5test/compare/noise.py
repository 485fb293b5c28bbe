"""What is beyond the noise between runs, in metrics that never repeat to the digit.

The model is the two-way table of benchmarks and runs: the logarithm of a value is that of the
version, and an effect of the run that all of its benchmarks share (a load episode, a clock), and a
rest. Both variances come from runs of one version, the control arm: what differs there is not the
code. Rounds of one run share its episode and its memory layout and tell nothing (see
docs/compare.md); each run counts once, by its best round.
"""

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
    """What runs of one version differ by, of each benchmark: (b,).

    variance  of one run: of the effect that all benchmarks of a run share, and of the rest, which
              is never below that of all benchmarks together
    freedom   degrees of freedom of the variance, by Welch (1947) and Satterthwaite (1946)
    drift     between the sides, had each benchmark gone on as it went in a side
    """

    variance: Table
    freedom: Table
    drift: Table


def shifts(old: Table, new: Table, effect: float) -> list[Shift]:
    """The shift of each benchmark. `old` (b, m) and `new` (b, n): logarithms, larger is worse.

    NaN where a run has no value; each row has one. A change below half of `effect` (0.05 is 5%) is
    never called one: a limit of half a slowdown is what finds that slowdown nearly always.

    Each benchmark is asked whether it is worse and whether it is better. All of these questions
    are one family of Holm's procedure: identical code is called worse *or* better in `SUITE` of
    suites. Raises FloatingPointError where a limit that runs tell is not a finite number.
    """
    size = np.nanmedian(new, axis=1) - np.nanmedian(old, axis=1)
    floor = control(old, new)
    # One run alone may be the disturbed one, whatever is known of the other version's runs.
    known = np.minimum(_count(old), _count(new)) > 1
    # A difference of two single runs: runs that were made one after another share their drift, so
    # that more of them make the floor better known and not lower.
    scale = np.sqrt(2 * floor.variance)
    tests = int(np.count_nonzero(known & np.isfinite(size)))
    # Without any noise a shift of any size is infinitely many times the noise.
    ends = np.where(size != 0, inf, 0.0)
    distance = np.divide(np.abs(size), scale, out=ends, where=scale > 0)
    # Of the two questions the likelier one: the other's p is above a half, and never rejected.
    p = np.where(known, stdtr(floor.freedom, -distance), nan)
    level = holm(p, 2 * tests)
    least = np.maximum(floor.drift, log1p(effect) / 2)
    limit = np.maximum(-stdtrit(floor.freedom, level) * scale, least)
    spread = np.sqrt(floor.variance * (_error(old) + _error(new)))
    detectable = limit + stdtrit(floor.freedom, POWER) * spread
    if not np.isfinite(np.stack([size, limit, detectable])[:, known]).all():
        raise FloatingPointError("a limit is not a finite number")
    return [
        Shift(float(s), float(a) if k else inf, float(d) if k else inf)
        for s, a, d, k in zip(size, limit, detectable, known, strict=True)
    ]


def control(old: Table, new: Table) -> Floor:
    """The floor, from what is left of each side's runs when its mean is taken away."""
    sides = [_residuals(side) for side in (old, new)]
    residuals = np.hstack(sides)
    common = _mean(residuals, 0)
    run_freedom = sum(max(int((~np.isnan(side)).any(0).sum()) - 1, 0) for side in sides)
    run = float(np.nansum(common**2)) / max(run_freedom, 1)
    own_freedom = _count(old) + _count(new) - 2
    squares = np.nansum((residuals - common) ** 2, axis=1)
    total = int(own_freedom.sum())
    rest_freedom = total - run_freedom
    rest = np.zeros(len(squares))
    if rest_freedom > 0:
        own = squares / np.maximum(own_freedom, 1) * (total / rest_freedom)
        rest = np.maximum(own, squares.sum() / rest_freedom)
    variance = run + rest
    parts = run**2 / max(run_freedom, 1) + rest**2 / max(rest_freedom, 1)
    whole = np.full(len(rest), float(run_freedom))
    freedom = np.divide(variance**2, parts, out=whole, where=parts > 0)
    pace = np.maximum(_pace(old), _pace(new))
    return Floor(variance, freedom, pace * (_count(old) + _count(new)) / 2)


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


def _residuals(side: Table) -> Table:
    """What runs differ by from the mean of their side; NaN where there is one alone."""
    return np.where(_count(side)[:, None] > 1, side - _mean(side, 1)[:, None], nan)


def _pace(side: Table) -> Table:
    """The largest difference in a side, a run."""
    span = np.nanmax(side, axis=1) - np.nanmin(side, axis=1)
    return np.asarray(span / np.maximum(_count(side) - 1, 1))


def _count(table: Table, axis: int = 1) -> Table:
    return np.asarray(np.maximum(np.count_nonzero(~np.isnan(table), axis=axis), 1), np.float64)


def _error(side: Table) -> Table:
    """The variance of a median over that of a run: pi / 2 times the mean's at most, if normal."""
    return np.asarray(np.where(_count(side) > 2, pi / 2, 1.0) / _count(side))


def _mean(table: Table, axis: int) -> Table:
    return np.asarray(np.nansum(table, axis=axis) / _count(table, axis))


def logarithms(rows: Sequence[Sequence[Sequence[float]]], *, higher: bool) -> Table:
    """The table of rows of runs of values, a column a value; larger is worse, NaN is missing."""
    widths = [max(map(len, runs)) for runs in zip(*rows, strict=True)]
    padded = [
        [v for run, width in zip(row, widths, strict=True) for v in [*run, *[nan] * width][:width]]
        for row in rows
    ]
    table = np.log(np.array(padded, dtype=np.float64))
    return -table if higher else table
