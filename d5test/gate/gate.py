"""What is measured next, and when it is enough: a session, restarts of suspects, fresh pairs.

Requirements: unchanged code costs little more than one session; the budget is kept; whatever was
measured is in the outcome, and what could not be is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from d5test.client.client import BackendClient
from d5test.compare.noise import SUITE
from d5test.gate.decider import PAIRS, SESSIONS, Decider, floor, noise_of
from d5test.gate.evidence import GATED, Evidence, add_pair, add_session
from d5test.gate.measurement import Measurement
from d5test.gate.session import FULL, SHORT, Rounds, Session
from d5test.gate.versions import ARMS, NEW, OLD
from d5test.metric import Metric
from d5test.timed import Subject

Charge = tuple[str, Metric]
"""A benchmark, and a metric in which it seems to differ and is to be measured again."""


@dataclass
class Findings:
    """What was measured.

    measurements  of sessions and pairs, in order, with what each was called
    evidence      by benchmark and metric
    left          benchmarks that the budget left no time for
    tests         charges that were brought before pairs
    spent     whether the budget ended before everything was settled
    sessions      what all of it cost, in first sessions
    """

    measurements: list[tuple[str, dict[str, Measurement]]] = field(default_factory=list)
    evidence: dict[str, dict[Metric, Evidence]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    tests: int = 0
    spent: bool = False
    sessions: float = 0.0


@dataclass
class Gate:
    """Measures benchmarks of two versions.

    open    a fresh client of an arm, for a backend
    budget  seconds that it may take
    tell    is called with a line of progress
    """

    open: Callable[[str, str], BackendClient]
    decider: Decider = field(default_factory=Decider)
    seed: int = 0
    budget: float = inf
    tell: Callable[[str], None] = lambda _: None
    loops: dict[str, int] = field(default_factory=dict)

    def measure(self, subjects: Sequence[Subject]) -> Findings:
        """All stages."""
        start = time.monotonic()
        run = _Run(self, {s.name: s for s in subjects}, start + self.budget)
        run.session("1", list(run.subjects))
        measured = {name for _, measurements in run.found.measurements for name in measurements}
        run.found.left = [name for name in run.subjects if name not in measured]
        first = time.monotonic() - start
        for k in range(2, SESSIONS + 1):
            run.session(str(k), sorted(run.charged(), key=run.place))
        run.confront()
        run.found.sessions = (time.monotonic() - start) / first
        return run.found


class _Run:
    """One measurement under way."""

    def __init__(self, gate: Gate, subjects: dict[str, Subject], until: float) -> None:
        self.gate, self.subjects, self.until = gate, subjects, until
        self.found = Findings()
        self.draw = np.random.default_rng(gate.seed)
        self.place = list(subjects).index

    def session(self, label: str, names: Sequence[str]) -> None:
        """All arms on these benchmarks."""
        if names and self._time_left():
            measurements = self._measure(label, names, ARMS, FULL)
            for name, measurement in measurements.items():
                known = {metric: Evidence() for metric in GATED}
                evidence = self.found.evidence.setdefault(name, known)
                if (
                    not add_session(evidence, measurement)
                    and not evidence[next(iter(GATED))].shifts
                ):
                    del self.found.evidence[name]
            charged = len(self.charged())
            self.gate.tell(
                f"session {label}: {len(measurements)} benchmarks, {charged} not settled"
            )

    def charged(self) -> set[str]:
        """Benchmarks that are to be measured again."""
        return {name for name, _ in self._charges()}

    def confront(self) -> None:
        """Pairs of fresh processes, until all charges are settled or the budget is spent."""
        open_charges = self._charges()
        self.found.tests = len(open_charges)
        for k in range(1, PAIRS + 1):
            if not open_charges or not self._time_left():
                break
            names = sorted({name for name, _ in open_charges}, key=self.place)
            measurements = self._measure(f"pair {k}", names, (OLD, NEW), SHORT)
            lost = {
                n
                for n in names
                if n not in measurements or not add_pair(self._of(n), measurements[n])
            }
            open_charges = [c for c in open_charges if c[0] not in lost and self._open(c)]
            self.gate.tell(f"pair {k}: {len(open_charges)} of {self.found.tests} not settled")

    def _charges(self) -> list[Charge]:
        decider, found = self.gate.decider, self.found.evidence
        floors = {
            metric: floor([metrics[metric] for metrics in found.values()]) for metric in GATED
        }
        return [
            (name, metric)
            for name, metrics in found.items()
            for metric, evidence in metrics.items()
            if decider.charge(evidence)
            and not decider.obvious(evidence, noise_of(evidence, floors[metric]))
        ]

    def _of(self, name: str) -> dict[Metric, Evidence]:
        return self.found.evidence[name]

    def _open(self, charge: Charge) -> bool:
        name, metric = charge
        pairs = self.gate.decider.pairs(self._of(name)[metric])
        return self.gate.decider.settled(pairs, SUITE / self.found.tests) is None

    def _time_left(self) -> bool:
        self.found.spent = self.found.spent or time.monotonic() > self.until
        return not self.found.spent

    def _measure(
        self, label: str, names: Iterable[str], arms: Sequence[str], rounds: Rounds
    ) -> dict[str, Measurement]:
        gate = self.gate
        error = gate.decider.error
        session = Session(arms, gate.open, self.draw, gate.loops, rounds, error, self.until)
        wanted = [self.subjects[name] for name in names]
        measurements = session.measure(wanted)
        self.found.spent = self.found.spent or len(measurements) < len(wanted)
        self.found.measurements.append((label, measurements))
        return measurements
