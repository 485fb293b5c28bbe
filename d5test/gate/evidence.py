"""What was seen of one metric of one benchmark: logarithms of quotients, larger is worse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import median

import numpy as np
from numpy.typing import NDArray

from d5test.gate.session import Bout
from d5test.gate.versions import CONTROL, NEW, OLD
from d5test.metric import RESIDENT, TIME, Metric

Values = NDArray[np.float64]
Blocks = Sequence[Sequence[float]]
DEVIATION = 1.4826
"""A normal deviation over the median of absolute deviations."""


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


def time_blocks(bout: Bout, arm: str, *others: str) -> Values:
    """Of each block: arms that took their turns at the same time, in the median of the turns.

    The turns share the load, the clock and the temperature; the blocks do not share a layout. One
    arm is compared with one other, and the mean taken then: what disturbs a round only makes it
    longer, and the median of a mean of two such rounds lies above that of one.
    """
    against = [_medians(bout.blocks[arm], bout.blocks[other]) for other in others]
    return np.asarray(np.mean(against, axis=0))


def _medians(one: Blocks, other: Blocks) -> Values:
    pairs = zip(one, other, strict=True)
    return np.array([np.median(np.log(a) - np.log(b)) for a, b in pairs])


def resident_blocks(bout: Bout, arm: str, *others: str) -> Values:
    """Of the whole process, in its peak."""
    one, *rest = (np.log(bout.entries[a]["memory"]["resident"]) for a in (arm, *others))
    return np.array([one - np.mean(rest)])


GATED: Mapping[Metric, Callable[..., Values]] = {TIME: time_blocks, RESIDENT: resident_blocks}
"""The metrics that have noise; less is better. All others are gated by their values."""


def add_session(evidence: Mapping[Metric, Evidence], bout: Bout) -> bool:
    """Take what a session says; False if an arm is missing or was wrong."""
    if not _right(bout, (OLD, CONTROL, NEW)):
        return False
    for metric, blocks in GATED.items():
        shifts = blocks(bout, NEW, OLD, CONTROL)
        evidence[metric].shifts.append(float(np.median(shifts)))
        evidence[metric].errors.append(_error(shifts))
        evidence[metric].controls.append(float(np.median(blocks(bout, CONTROL, OLD))))
    return True


def add_pair(evidence: Mapping[Metric, Evidence], bout: Bout) -> bool:
    """Take what a pair of fresh processes says; False if one is missing or was wrong."""
    if not _right(bout, (OLD, NEW)):
        return False
    for metric, blocks in GATED.items():
        evidence[metric].pairs.append(float(np.median(blocks(bout, NEW, OLD))))
    return True


def _error(values: Values) -> float:
    """Of a median, robustly: sqrt(pi / 2) that of a mean."""
    spread = DEVIATION * float(np.median(np.abs(values - np.median(values))))
    return spread * sqrt(np.pi / 2 / len(values))


def _right(bout: Bout, arms: Sequence[str]) -> bool:
    return all(arm in bout.entries and bout.entries[arm]["valid"] for arm in arms)
