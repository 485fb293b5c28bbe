"""What was seen of one metric of one benchmark: logarithms of quotients, larger is worse.

How much longer a benchmark took on one arm than on others has two estimates: where one is wide,
the other often is not. Both change their sign when the arms are exchanged, and so does the choice:
identical code is as often called faster as it is called slower.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import hypot, inf, sqrt
from statistics import median

import numpy as np
from numpy.typing import NDArray

from d5test.client.messages import Round
from d5test.gate.versions import CONTROL, NEW, OLD
from d5test.metric import RESIDENT, TIME, Metric
from d5test.timed import Entry

DEVIATION = 1.4826
"""A normal deviation over the median of absolute deviations."""
Values = NDArray[np.float64]
FASTEST = 0.1
"""The share of rounds that are as good as undisturbed."""
RESAMPLES = 100
"""How often the blocks are drawn again, to see what an estimate errs by."""
APART = 2
"""Two estimates that differ by as many times their errors contradict each other."""


@dataclass(frozen=True)
class Shift:
    """A logarithm of a quotient, and its standard error."""

    size: float
    error: float


@dataclass
class Measurement:
    """A benchmark in one session: what each arm recorded, or why it has nothing.

    rounds     of each arm, all that were timed
    blocks     seconds a call, of each arm; in the k-th turn of a block all arms were timed at once
    processes  how many of the blocks each process of an arm was timed in, one after the other
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    blocks: dict[str, list[list[float]]] = field(default_factory=dict)
    processes: list[int] = field(default_factory=list)

    def longer(self, arm: str, others: Sequence[str]) -> Shift:
        """By how much an arm took longer than the mean of others, in the better estimate.

        Of each process, one is the median of the blocks' quotients, each the median of those of
        its turns: the turns share the load, the clock and the temperature, the blocks do not share
        a layout of memory. The other is the quotient of the fastest tenths of all rounds, which
        others have not disturbed. A version that is slower in some of its rounds only has both
        contradict each other: then the median speaks, whatever it errs by.
        """
        ours, *theirs = (np.log(self.blocks[name]) for name in (arm, *others))
        again = np.random.default_rng(0)
        bounds = pairwise(np.cumsum([0, *self.processes]).tolist())
        both = [
            _estimates(ours[first:last], [rounds[first:last] for rounds in theirs], again)
            for first, last in bounds
        ]
        turns, fastest = (_shift(processes) for processes in zip(*both, strict=True))
        apart = abs(turns.size - fastest.size) > APART * hypot(turns.error, fastest.error)
        better = turns if apart or turns.error <= fastest.error else fastest
        return better if len(ours) > 1 else Shift(better.size, inf)


def _estimates(
    ours: Values, theirs: Sequence[Values], again: np.random.Generator
) -> tuple[Values, Values]:
    """Of one process both estimates: of its blocks as they were, then of blocks drawn again.

    Their spread is scaled to be that of as many other blocks.
    """
    blocks = len(ours)
    chosen = np.vstack([np.arange(blocks), again.integers(blocks, size=(RESAMPLES, blocks))])
    turns = np.median(_in_turn(ours, theirs)[chosen], axis=1)
    against = np.mean([_fastest(rounds[chosen]) for rounds in theirs], axis=0)
    scale = sqrt(blocks / (blocks - 1)) if blocks > 1 else 1.0
    fastest = _fastest(ours[chosen]) - against
    return (
        turns[0] + scale * (turns - turns[0]),
        fastest[0] + scale * (fastest - fastest[0]),
    )


def _in_turn(ours: Values, theirs: Sequence[Values]) -> Values:
    """Of each block, the quotient in the median of its turns.

    One arm is compared with one other, and the mean taken then: what disturbs a round only makes
    it longer, and the median of a mean of two such rounds lies above that of one.
    """
    quotients = [np.median(ours - rounds, axis=1) for rounds in theirs]
    return np.asarray(np.mean(quotients, axis=0))


def _fastest(rounds: Values) -> Values:
    """The end of the fastest tenth, of each choice of blocks."""
    return np.asarray(np.quantile(rounds.reshape(len(rounds), -1), FASTEST, axis=1))


def _shift(processes: Sequence[Values]) -> Shift:
    """The mean of the processes, and what it errs by: as their blocks say, or as they differ."""
    size, *others = np.mean(processes, axis=0)
    firsts = [each[0] for each in processes]
    between = np.std(firsts, ddof=1) / sqrt(len(firsts)) if len(firsts) > 1 else 0.0
    return Shift(float(size), float(max(np.std(others), between)))


@dataclass
class Evidence:
    """Logarithms of new over old, a value a session or a pair.

    shifts    of sessions: new against the mean of the two workers of the old version
    controls  of sessions: the second worker of the old version against the first
    errors    of the shifts, from what the blocks of a session differ by
    pairs     of pairs of fresh processes
    """

    shifts: list[float] = field(default_factory=list)
    controls: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    pairs: list[float] = field(default_factory=list)

    @property
    def shift(self) -> float:
        """The median of the sessions."""
        return median(self.shifts)

    @property
    def error(self) -> float:
        """What that errs by: as its blocks say, or as two processes of the old version do.

        Some benchmarks differ from one process to the next by far more than from block to block.
        With errors of variance v in each arm a control has 2 v, a shift 3/2 v.
        """
        processes = sqrt(0.75) * median(map(abs, self.controls))
        return max(median(self.errors), processes) / sqrt(len(self.shifts))


def resident(measurement: Measurement, arm: str, others: Sequence[str]) -> Shift:
    """Of the whole process, in its peak."""
    one, *rest = (np.log(measurement.entries[a]["memory"]["resident"]) for a in (arm, *others))
    return Shift(float(one - np.mean(rest)), 0.0)


GATED: Mapping[Metric, Callable[[Measurement, str, Sequence[str]], Shift]] = {
    TIME: Measurement.longer,
    RESIDENT: resident,
}
"""The metrics that have noise; less is better. All others are gated by their values."""


def add_session(evidence: Mapping[Metric, Evidence], measurement: Measurement) -> bool:
    """Take what a session says; False if an arm is missing or was wrong."""
    if not _right(measurement, (OLD, CONTROL, NEW)):
        return False
    for metric, larger in GATED.items():
        shift = larger(measurement, NEW, (OLD, CONTROL))
        evidence[metric].shifts.append(shift.size)
        evidence[metric].errors.append(shift.error)
        evidence[metric].controls.append(larger(measurement, CONTROL, (OLD,)).size)
    return True


def add_pair(evidence: Mapping[Metric, Evidence], measurement: Measurement) -> bool:
    """Take what a pair of fresh processes says; False if one is missing or was wrong."""
    if not _right(measurement, (OLD, NEW)):
        return False
    for metric, larger in GATED.items():
        evidence[metric].pairs.append(larger(measurement, NEW, (OLD,)).size)
    return True


def _right(measurement: Measurement, arms: Sequence[str]) -> bool:
    return all(arm in measurement.entries and measurement.entries[arm]["valid"] for arm in arms)
