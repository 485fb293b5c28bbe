"""What was seen of one metric of one benchmark: logarithms of quotients, larger is worse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import median

import numpy as np

from d5test.gate.session import Bout, Entry
from d5test.gate.versions import CONTROL, NEW, OLD
from d5test.metric import RESIDENT, TIME, Metric

QUANTILE = 0.1
"""Of the rounds of a session: what disturbs a round makes it longer."""


@dataclass
class Evidence:
    """Logarithms of new over old, a value a session or a pair.

    shifts    of sessions: new against the mean of the two workers of the old version
    controls  of sessions: the second worker of the old version against the first
    pairs     of pairs of fresh processes
    """

    shifts: list[float] = field(default_factory=list)
    controls: list[float] = field(default_factory=list)
    pairs: list[float] = field(default_factory=list)

    @property
    def shift(self) -> float:
        """The median of the sessions."""
        return median(self.shifts)

    @property
    def noise(self) -> float:
        """What a session's shift errs by, from its own controls: a root mean square.

        With errors of variance v in each arm a control has 2 v, a shift 3/2 v.
        """
        return float(np.sqrt(0.75 * np.mean(np.square(self.controls))))


def time_of(entry: Entry, *, alone: bool) -> float:
    """Seconds a call of the least disturbed rounds; `alone`: of the fastest."""
    return float(np.quantile(entry["seconds"], 0.0 if alone else QUANTILE))


def resident_of(entry: Entry, *, alone: bool) -> float:
    """Peak bytes of the process."""
    return float(entry["memory"]["resident"])


GATED: Mapping[Metric, Callable[..., float]] = {TIME: time_of, RESIDENT: resident_of}
"""The metrics that have noise; less is better. All others are gated by their values."""


def add_session(evidence: Mapping[Metric, Evidence], bout: Bout) -> bool:
    """Take what a session says; False if an arm is missing or was wrong."""
    if not _right(bout, (OLD, CONTROL, NEW)):
        return False
    for metric, value in GATED.items():
        old, control, new = (
            log(value(bout.entries[arm], alone=False)) for arm in (OLD, CONTROL, NEW)
        )
        evidence[metric].shifts.append(new - (old + control) / 2)
        evidence[metric].controls.append(control - old)
    return True


def add_pair(evidence: Mapping[Metric, Evidence], bout: Bout) -> bool:
    """Take what a pair of fresh processes says; False if one is missing or was wrong."""
    if not _right(bout, (OLD, NEW)):
        return False
    for metric, value in GATED.items():
        old, new = (log(value(bout.entries[arm], alone=True)) for arm in (OLD, NEW))
        evidence[metric].pairs.append(new - old)
    return True


def _right(bout: Bout, arms: Sequence[str]) -> bool:
    return all(arm in bout.entries and bout.entries[arm]["valid"] for arm in arms)
