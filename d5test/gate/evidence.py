"""What was seen of one metric of one benchmark: logarithms of quotients, larger is worse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import median

import numpy as np

from d5test.gate.measurement import Measurement, Shift
from d5test.gate.versions import CONTROL, NEW, OLD
from d5test.metric import RESIDENT, TIME, Metric

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
