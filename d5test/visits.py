"""Times of one version by several runs in one session, each in fresh processes and short turns.

Requirements: what is said of a benchmark does not depend on the seconds in which it was timed. A
machine with neighbours is slower for seconds at a time, by a third and more: rounds one after the
other all lie in such a phase or all outside, those of short visits that are spread over a run do
not. Where its tensors lie makes a process faster or slower: a run has several. So the fastest of a
run's rounds is the machine's, and what runs differ by is what files differ by that are made one
after the other; processes side by side differ by less, since they share the machine's state. Much
of that is the machine's pace, a clock or a neighbour: each visit tells it beside its rounds, see
`d5test.worker.machine`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby, product
from math import log2
from typing import Any

import numpy as np

from d5test.client.client import BackendClient
from d5test.client.messages import Round
from d5test.timed import BRIEF, BROKEN, Entry, Subject, Timed, displacement, move

HOST = "cpu"
"""The device whose pace is that of the interpreter."""
MACHINE = "d5test.worker.machine"
LEAST = 0.1
"""The quantile of visits that stands for their run: the least of all is one lucky quotient."""


@dataclass(frozen=True)
class Plan:
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

    loops    calls a round, a power of two; found once, the same in all of them
    rounds   of each run, in order
    visits   of each run, where the pace is known: seconds of a call in the fastest round, and of
             the work that tells the machine's pace
    work     what tells it
    entries  what was recorded of each run that came to its end
    broken   what broke; the benchmark was left alone then
    """

    loops: int = 0
    rounds: list[list[Round]] = field(default_factory=list)
    visits: list[list[tuple[float, float]]] = field(default_factory=list)
    work: str = ""
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
            "paced": self._paced() if self.work else None,
        }

    def _paced(self) -> dict[str, Any]:
        """See `d5test.record.Record`."""
        runs = [np.array(visits).T for visits in self.visits[: len(self.entries)]]
        return {
            "work": self.work,
            "paces": [float(np.quantile(pace, LEAST)) for _, pace in runs],
            "times": [float(np.quantile(call / pace, LEAST)) for call, pace in runs],
        }


@dataclass
class Visits:
    """What is visited.

    open   so many fresh processes with a backend
    runs   how many there are, one after the other
    until  when to stop, by `time.monotonic`
    """

    open: Callable[[str, int], Sequence[BackendClient]]
    runs: int
    draw: np.random.Generator
    plan: Plan = field(default_factory=Plan)
    until: float = float("inf")

    def measure(self, subjects: Sequence[Subject]) -> dict[str, Visited]:
        """By name, but for those that no time was left for. Raises what `open` raises."""
        visited = {subject.name: Visited() for subject in subjects}
        for backend, subjects_of_it in groupby(subjects, lambda subject: subject.backend):
            group = [(subject, visited[subject.name]) for subject in subjects_of_it]
            for run in range(self.runs):
                with ExitStack() as stack:
                    clients = self.open(backend, self.plan.processes)
                    for client in clients:
                        stack.enter_context(client)
                    left = self.until - time.monotonic()
                    self._run(group, clients, left / (self.runs - run))
        return {name: one for name, one in visited.items() if one.entries or one.broken}

    def _run(
        self,
        group: Sequence[tuple[Subject, Visited]],
        clients: Sequence[BackendClient],
        left: float,
    ) -> None:
        places = list(product(group, clients))
        for _, visited in group:
            visited.rounds.append([])
            visited.visits.append([])
        for last in self._passes(len(places), left):
            order = [places[k] for k in self.draw.permutation(len(places))]
            closing = {subject.name: client for (subject, _), client in order}
            for (subject, visited), client in order:
                if visited.broken is None:
                    judged = last and client is closing[subject.name]
                    self._visit(subject, client, visited, judged=judged)

    def _passes(self, places: int, left: float) -> Iterator[bool]:
        """Passes over all places, in so many seconds; whether each is the last one."""
        plan, begun, longest = self.plan, time.monotonic(), 0.0
        late, spent = begun + max(plan.span, plan.seconds * places), begun + left
        for k in range(1, plan.most + 1):
            now = time.monotonic()
            if now > spent:
                return
            next_ends = now + 2 * longest
            last = k == plan.most or next_ends > spent or (k >= plan.least and next_ends > late)
            yield last
            if last:
                return
            longest = max(longest, time.monotonic() - now)
            rest = begun + k * min(plan.span, left) / plan.most - time.monotonic()
            time.sleep(max(rest, 0))

    def _visit(
        self, subject: Subject, client: BackendClient, visited: Visited, *, judged: bool
    ) -> None:
        """One visit; `judged`: the last one of a run, whose outputs are judged."""
        try:
            timed = subject.make(client, "")
            try:
                move(client, displacement(self.draw))
                if not visited.loops:
                    visited.loops = power_of_two(timed.start() / BRIEF)
                timed.start(visited.loops)
                self._rounds(client, visited, timed)
                if judged:
                    visited.entries.append(timed.record(visited.rounds[-1], visited.loops))
            finally:
                timed.close()
        except BROKEN as error:
            visited.broken = error

    def _rounds(self, client: BackendClient, visited: Visited, timed: Timed) -> None:
        """The rounds of a visit, between two looks at the machine's pace."""
        if client.about.device != HOST:
            visited.rounds[-1] += self._turns(timed)
            return
        visited.work = visited.work or client.invoke(f"{MACHINE}:work")
        before = client.invoke(f"{MACHINE}:pace")
        rounds = list(self._turns(timed))
        pace = min(before, client.invoke(f"{MACHINE}:pace"))
        visited.rounds[-1] += rounds
        visited.visits[-1].append((min(r.wall for r in rounds), pace))

    def _turns(self, timed: Timed) -> Iterator[Round]:
        end = time.monotonic() + self.plan.stay
        for k in range(self.plan.turns):
            if k >= self.plan.few and time.monotonic() > end:
                return
            yield timed.round()


def power_of_two(number: float) -> int:
    """The nearest, by ratio: files whose rounds have as many calls differ less."""
    return int(2 ** max(round(log2(number)), 0))
