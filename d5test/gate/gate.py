"""What is measured next, and when it is enough: a session, restarts of suspects, fresh pairs.

Requirements: unchanged code costs little more than one session; the budget is kept; whatever was
measured is in the outcome, and what could not be is paired.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from d5test.client.client import BackendClient
from d5test.compare.noise import SUITE
from d5test.gate.decider import PAIRS, SESSIONS, Decider, floors, noise_of
from d5test.gate.evidence import GATED, Evidence, Measurement, add_pair, add_session
from d5test.gate.session import FULL, SHORT, Rounds, Session
from d5test.gate.versions import ARMS, NEW, OLD
from d5test.metric import TIME, Metric
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
    spent         whether the budget ended before everything was settled
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
        begun = time.monotonic()
        self._until, self._draw = begun + self.budget, np.random.default_rng(self.seed)
        self._subjects = {subject.name: subject for subject in subjects}
        findings = self._findings = Findings()
        self._hold_session("1", self._subjects)
        measured = {name for _, measurements in findings.measurements for name in measurements}
        findings.left = [name for name in self._subjects if name not in measured]
        first = time.monotonic() - begun
        for k in range(2, SESSIONS + 1):
            self._hold_session(str(k), {name for name, _ in self._charges()})
        self._confront()
        findings.sessions = (time.monotonic() - begun) / first
        return findings

    def _hold_session(self, label: str, names: Collection[str]) -> None:
        """All arms on these benchmarks."""
        if not names or not self._time_left():
            return
        measurements = self._measure(label, names, ARMS, FULL)
        for name, measurement in measurements.items():
            nothing = {metric: Evidence() for metric in GATED}
            evidence = self._findings.evidence.setdefault(name, nothing)
            if not add_session(evidence, measurement) and not evidence[TIME].shifts:
                del self._findings.evidence[name]
        charged = {name for name, _ in self._charges()}
        self.tell(f"session {label}: {len(measurements)} benchmarks, {len(charged)} not settled")

    def _confront(self) -> None:
        """Pairs of fresh processes, until all charges are settled or the budget is spent."""
        charges, evidence = self._charges(), self._findings.evidence
        tests = self._findings.tests = len(charges)
        for k in range(1, PAIRS + 1):
            if not charges or not self._time_left():
                break
            names = {name for name, _ in charges}
            measurements = self._measure(f"pair {k}", names, (OLD, NEW), SHORT)
            paired = {n for n, m in measurements.items() if add_pair(evidence[n], m)}
            charges = [
                (name, metric)
                for name, metric in charges
                if name in paired and self._settled(evidence[name][metric]) is None
            ]
            self.tell(f"pair {k}: {len(charges)} of {tests} not settled")

    def _charges(self) -> list[Charge]:
        """What is to be measured again."""
        noise = floors(self._findings.evidence)
        return [
            (name, metric)
            for name, metrics in self._findings.evidence.items()
            for metric, evidence in metrics.items()
            if self.decider.charge(evidence)
            and not self.decider.obvious(evidence, noise_of(evidence, noise[metric]))
        ]

    def _settled(self, evidence: Evidence) -> bool | None:
        return self.decider.settled(self.decider.pairs(evidence), SUITE / self._findings.tests)

    def _time_left(self) -> bool:
        self._findings.spent |= time.monotonic() > self._until
        return not self._findings.spent

    def _measure(
        self, label: str, names: Collection[str], arms: Sequence[str], rounds: Rounds
    ) -> dict[str, Measurement]:
        session = Session(
            arms, self.open, self._draw, self.loops, rounds, self.decider.error, self._until
        )
        wanted = [subject for name, subject in self._subjects.items() if name in names]
        measurements = session.measure(wanted)
        self._findings.spent |= len(measurements) < len(wanted)
        self._findings.measurements.append((label, measurements))
        return measurements
