"""The gate on this machine: false alarms on identical code, and slowdowns that it finds.

Requirements: what is slowed down is measured like all else, in rounds as short, and its times are
reported longer by the effect; no part of the gate knows of it; rates have confidence intervals.
(More calls in a round would be real work, but make it 40 calls long, for 5% of them: under load
such rounds are pre-empted where those of the gate are not.)
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import betaincinv

from d5test.client.client import BackendClient
from d5test.client.messages import Round
from d5test.gate.decider import Verdicts
from d5test.gate.gate import Findings, Gate
from d5test.gate.versions import NEW
from d5test.metric import TIME
from d5test.timed import Subject, Timed


class Slowed:
    """Something timed (`Timed`) that takes a share longer than it does."""

    def __init__(self, timed: Timed, share: float) -> None:
        self._timed, self._stretch = timed, 1 + share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timed, name)

    def round(self) -> Round:
        """A round that is longer by the share."""
        measured = self._timed.round()
        stretch = self._stretch
        return Round(measured.wall * stretch, measured.cpu * stretch, measured.switches)


@dataclass
class Trial:
    """What was seen: counts, as `(found, of)`.

    alarms    benchmarks called worse that were not slowed down
    red       suites of identical code in which one was
    found     slowdowns of the effect called worse
    unsure    identical benchmarks called unsure
    sessions  what gates of identical code cost, in first sessions
    """

    alarms: list[int] = field(default_factory=lambda: [0, 0])
    red: list[int] = field(default_factory=lambda: [0, 0])
    found: list[int] = field(default_factory=lambda: [0, 0])
    unsure: list[int] = field(default_factory=lambda: [0, 0])
    sessions: list[float] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What it says, with 95% confidence intervals."""
        cost = f"{np.mean(self.sessions):.2f}" if self.sessions else "-"
        return [
            f"false alarms         {_rate(self.alarms)} benchmarks of identical code",
            f"suites in the red    {_rate(self.red)} suites of identical code",
            f"slowdowns found      {_rate(self.found)}",
            f"unsure               {_rate(self.unsure)} benchmarks of identical code",
            f"cost                 {cost} sessions a suite of identical code",
        ]


def trial(gate: Callable[[int], Gate], subjects: Sequence[Subject], end: float) -> Trial:
    """Gates in turn on identical code, and on code of which every other benchmark is slowed.

    gate  a new gate, by its seed
    end   when to stop, by `time.monotonic`: no two begin that would not end by then
    """
    rates = Trial()
    seed, longest = 0, 0.0
    while not seed or time.monotonic() + longest < end:
        begun = time.monotonic()
        one = gate(seed)
        findings = one.measure(subjects)
        verdicts = _verdicts(one, findings)
        for verdict in verdicts.values():
            _count(rates.alarms, verdict == "worse")
            _count(rates.unsure, verdict == "unsure")
        _count(rates.red, "worse" in verdicts.values())
        rates.sessions.append(findings.sessions)
        slow = {subject.name for subject in subjects[seed % 2 :: 2]}
        two = replace(gate(seed), loops=one.loops)
        share = two.decider.effect
        findings = two.measure([_slowed(s, share) if s.name in slow else s for s in subjects])
        for name, verdict in _verdicts(two, findings).items():
            _count(rates.found if name in slow else rates.alarms, verdict == "worse")
        seed, longest = seed + 1, max(longest, time.monotonic() - begun)
    return rates


def _slowed(subject: Subject, share: float) -> Subject:
    def make(client: BackendClient, arm: str) -> Any:
        timed = subject.make(client, arm)
        return Slowed(timed, share) if arm == NEW else timed

    return replace(subject, make=make)


def _verdicts(gate: Gate, findings: Findings) -> dict[str, str]:
    """On the time of each benchmark."""
    return Verdicts(findings.evidence, gate.decider).of(TIME)


def _count(pair: list[int], hit: bool) -> None:
    pair[0] += hit
    pair[1] += 1


def _rate(pair: list[int]) -> str:
    """A share with its interval by Clopper and Pearson (1934)."""
    k, n = pair
    if not n:
        return "0 of 0"
    low = betaincinv(k, n - k + 1, 0.025) if k else 0.0
    high = betaincinv(k + 1, n - k, 0.975) if k < n else 1.0
    return f"{k} of {n} ({k / n:.1%}, [{low:.1%}, {high:.1%}])"
