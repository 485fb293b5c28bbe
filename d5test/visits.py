"""Times of one version by several runs in one session, each in fresh processes that are visited.

Requirements: what is said of a benchmark does not hang on the seconds in which it was timed. A
machine with neighbours is slower for seconds at a time, by a third and more: rounds one after the
other all lie in such a phase or all outside, those of short visits that are spread over a run do
not. Where its tensors lie makes a process faster or slower: a run has several. So the fastest of a
run's rounds is the machine's, and what runs differ by is what files differ by that are made one
after the other; processes side by side differ by less, since they share the weather.
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
    """How a run goes.

    processes  that are visited in a run
    most       visits; fewer, but `least`, if they would take longer than `seconds` a process
    span       seconds over which visits are spread at least
    turns      rounds of a visit; fewer, but `few`, if they would take longer than `stay` seconds
    """

    processes: int = 3
    most: int = 32
    least: int = 3
    seconds: float = 1.0
    span: float = 10.0
    turns: int = 15
    few: int = 3
    stay: float = 0.02


@dataclass
class Visited:
    """A benchmark in all runs.

    loops    calls a round; found once, the same in all of them
    rounds   of each run, in order
    entries  what was recorded of each run that came to its end
    broken   what broke; the benchmark was left alone then
    """

    loops: int = 0
    rounds: list[list[Round]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    broken: Exception | None = None

    @property
    def entry(self) -> Entry:
        """The record of the first run, with what the others measured; wrong if one was wrong."""
        first, *others = self.entries
        wrong = [entry for entry in others if not entry["valid"]][:1] if first["valid"] else []
        return {
            **first,
            **{name: entry[name] for entry in wrong for name in ("judgement", "valid")},
            "control": [min(entry["seconds"]) for entry in others],
            "control_resident": [entry["memory"]["resident"] for entry in others],
        }


@dataclass
class Visits:
    """What is visited.

    open   so many fresh processes with a backend
    runs   how many there are, one after the other
    until  when to stop, by `time.monotonic`
    """

    open: Callable[[str, int], Sequence[Judged]]
    runs: int
    draw: np.random.Generator
    pace: Pace = field(default_factory=Pace)
    until: float = float("inf")

    def measure(self, subjects: Sequence[Subject]) -> dict[str, Visited]:
        """By name, but for those that no time was left for. Raises what `open` raises."""
        found = {subject.name: Visited() for subject in subjects}
        for backend, group in groupby(subjects, lambda subject: subject.backend):
            own = list(group)
            for run in range(self.runs):
                with ExitStack() as stack:
                    clients = self.open(backend, self.pace.processes)
                    for client in clients:
                        stack.enter_context(client)
                    left = self.until - time.monotonic()
                    self._run(own, clients, found, left / (self.runs - run))
        return {name: each for name, each in found.items() if each.entries or each.broken}

    def _run(
        self,
        subjects: Sequence[Subject],
        clients: Sequence[Judged],
        found: dict[str, Visited],
        left: float,
    ) -> None:
        places = list(product(subjects, clients))
        for subject in subjects:
            found[subject.name].rounds.append([])
        for last in self._passes(len(places), left):
            order = [places[k] for k in self.draw.permutation(len(places))]
            closing = {subject.name: client for subject, client in order}
            for subject, client in order:
                visited = found[subject.name]
                if visited.broken is None:
                    judged = last and client is closing[subject.name]
                    self._visit(subject, client, visited, judged=judged)

    def _passes(self, places: int, left: float) -> Iterator[bool]:
        """Passes over all places, in so many seconds; whether each is the last one."""
        pace, begun, longest = self.pace, time.monotonic(), 0.0
        late, spent = begun + max(pace.span, pace.seconds * places), begun + left
        for k in range(1, pace.most + 1):
            now = time.monotonic()
            if now > spent:
                return
            next_ends = now + 2 * longest
            last = k == pace.most or next_ends > spent or (k >= pace.least and next_ends > late)
            yield last
            if last:
                return
            longest = max(longest, time.monotonic() - now)
            rest = begun + k * min(pace.span, left) / pace.most - time.monotonic()
            time.sleep(max(rest, 0))

    def _visit(self, subject: Subject, client: Judged, visited: Visited, *, judged: bool) -> None:
        """One visit; `judged`: the last one of a run, whose outputs are judged."""
        try:
            timed = subject.make(client, "")
            try:
                move(client, displacement(self.draw))
                if not visited.loops:
                    visited.loops = max(1, timed.start() // BRIEF)
                timed.start(visited.loops)
                visited.rounds[-1] += self._turns(timed)
                if judged:
                    visited.entries.append(timed.record(visited.rounds[-1], visited.loops))
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
