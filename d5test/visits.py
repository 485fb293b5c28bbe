"""Times of one version in several processes, by short visits that are spread over the run.

Requirements: what is said of a benchmark does not hang on the seconds in which it was timed. A
machine with neighbours is slower for seconds at a time, by a third and more: rounds one after the
other all lie in such a phase or all outside, those of many visits do not, and the fastest of them
is the machine's when nothing disturbs it. The processes know nothing of each other, and the order
of all visits is drawn: so they differ by what two runs of one version differ by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby, product

import numpy as np

from d5test.backends.client import Judged
from d5test.backends.exchange import Round
from d5test.timed import BRIEF, BROKEN, Entry, Subject, Timed, displacement, move


@dataclass(frozen=True)
class Pace:
    """How often a process is visited for a benchmark, and how long.

    most     visits; fewer, but `least`, if they would take longer than `seconds` a process
    span     seconds over which visits are spread at least
    turns    rounds of a visit; fewer, but `few`, if they would take longer than `stay` seconds
    """

    most: int = 96
    least: int = 4
    seconds: float = 3.0
    span: float = 40.0
    turns: int = 15
    few: int = 5
    stay: float = 0.02


@dataclass
class Visited:
    """A benchmark in all processes.

    loops   calls a round; found once, the same in all processes
    rounds  of each process, in order
    entry   what the first process recorded; None if something broke
    broken  what broke; the benchmark was left alone then
    """

    loops: int = 0
    rounds: list[list[Round]] = field(default_factory=list)
    entry: Entry | None = None
    broken: Exception | None = None

    @property
    def least(self) -> list[float]:
        """Seconds a call of each process' fastest round."""
        return [min(one.wall for one in rounds) for rounds in self.rounds]


@dataclass
class Visits:
    """What is visited.

    open       so many fresh processes with a backend
    processes  how many there are of each backend
    until      when to stop, by `time.monotonic`
    """

    open: Callable[[str, int], Sequence[Judged]]
    processes: int
    draw: np.random.Generator
    pace: Pace = field(default_factory=Pace)
    until: float = float("inf")

    def measure(self, subjects: Sequence[Subject]) -> dict[str, Visited]:
        """By name, but for those that no time was left for. Raises what `open` raises."""
        found: dict[str, Visited] = {}
        for backend, group in groupby(subjects, lambda subject: subject.backend):
            with ExitStack() as stack:
                clients = self.open(backend, self.processes)
                for client in clients:
                    stack.enter_context(client)
                found |= self._visit_all(list(group), clients)
        return found

    def _visit_all(
        self, subjects: Sequence[Subject], clients: Sequence[Judged]
    ) -> dict[str, Visited]:
        found = {s.name: Visited(rounds=[[] for _ in clients]) for s in subjects}
        places = list(product(range(len(clients)), subjects))
        for last in self._passes(len(places)):
            for k in self.draw.permutation(len(places)):
                process, subject = places[k]
                visited = found[subject.name]
                if visited.broken is None:
                    self._visit(subject, clients[process], process, visited, last=last)
        return {name: v for name, v in found.items() if v.entry or v.broken}

    def _passes(self, places: int) -> Iterator[bool]:
        """Passes over all places; whether each is the last one."""
        pace, begun, longest = self.pace, time.monotonic(), 0.0
        end = begun + max(pace.span, pace.seconds * places)
        for k in range(1, pace.most + 1):
            now = time.monotonic()
            if now > self.until:
                return
            late = k >= pace.least and now + 2 * longest > end
            last = k == pace.most or late or now + 2 * longest > self.until
            yield last
            if last:
                return
            longest = max(longest, time.monotonic() - now)
            rest = begun + k * pace.span / pace.most - time.monotonic()
            time.sleep(max(rest, 0))

    def _visit(
        self, subject: Subject, client: Judged, process: int, visited: Visited, *, last: bool
    ) -> None:
        try:
            timed = subject.make(client, str(process))
            try:
                move(client, displacement(self.draw))
                if not visited.loops:
                    visited.loops = max(1, timed.start() // BRIEF)
                timed.start(visited.loops)
                rounds = visited.rounds[process]
                rounds += self._turns(timed)
                if last and not process:
                    visited.entry = timed.record(rounds, visited.loops)
            finally:
                timed.close()
        except BROKEN as error:
            visited.broken = error

    def _turns(self, timed: Timed) -> Iterator[Round]:
        end = time.monotonic() + self.pace.stay
        for k in range(self.pace.turns):
            if k >= self.pace.few and time.monotonic() > end:
                return
            yield timed.round()
