"""One session: each benchmark on workers of all arms, round by round in turns.

Requirements: the arms share the load, the clock and the order of everything, or the order is drawn
anew; each arm makes the same calls in a round; who cannot run says why, and the others go on.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from math import inf

import numpy as np

from d5test.client.client import BackendClient
from d5test.gate.evidence import Measurement
from d5test.gate.versions import NEW
from d5test.timed import BRIEF, BROKEN, Subject, Timed, displacement, move


@dataclass(frozen=True)
class Rounds:
    """How often an arm is timed: `turns` in each of `blocks`, in each of `processes`.

    The tensors of a block are new ones, elsewhere in memory; the processes are fresh ones. There
    are fewer blocks, but one, if an arm would take longer than `seconds` in a process; there are
    `LONGER` times as many processes if they differ so much that what they say is not settled.
    """

    processes: int
    blocks: int
    turns: int
    seconds: float


FULL = Rounds(processes=4, blocks=5, turns=12, seconds=0.75)
SHORT = Rounds(processes=1, blocks=10, turns=10, seconds=2.0)
"""Of a pair of fresh processes: pairs are many."""
LONGER = 3


@dataclass
class Session:
    """What is measured in it.

    arms    who takes part; `order` is drawn from `draw`, for the start of the workers too
    loops   calls a round by benchmark: found once, the same in all arms and sessions
    error   of the newest arm's shift, above which there are more processes
    """

    arms: Sequence[str]
    open: Callable[[str, str], BackendClient]
    draw: np.random.Generator
    loops: dict[str, int]
    rounds: Rounds = FULL
    error: float = inf
    until: float = inf
    """When to stop, by `time.monotonic`: benchmarks that have not begun then are left out. More
    processes than were planned take half of the time that is left: others need a decision, too.
    """

    def measure(self, subjects: Sequence[Subject]) -> dict[str, Measurement]:
        """The measurements of the benchmarks that had their turn."""
        measurements: dict[str, Measurement] = {}
        half = (time.monotonic() + self.until) / 2
        for process in range(LONGER * self.rounds.processes):
            planned = process < self.rounds.processes
            if not planned and time.monotonic() > half:
                break
            wanted = [s for s in subjects if self._goes_on(measurements.get(s.name), planned)]
            for backend, group in groupby(wanted, lambda subject: subject.backend):
                if time.monotonic() > self.until:
                    return measurements
                with clients_of(self.open, self._order(self.arms), backend) as (clients, broken):
                    for subject in group:
                        if time.monotonic() > self.until:
                            return measurements
                        measurement = measurements.setdefault(subject.name, Measurement())
                        measurement.broken = {**broken, **measurement.broken}
                        self._process(subject, clients, measurement)
        return measurements

    def _goes_on(self, measurement: Measurement | None, planned: bool) -> bool:
        """Whether a benchmark is timed in one more process, one that was planned or not."""
        if measurement is None:
            return planned
        if measurement.broken or planned:
            return not measurement.broken
        return measurement.longer(NEW, [arm for arm in self.arms if arm != NEW]).error > self.error

    def _order(self, arms: Sequence[str]) -> list[str]:
        return [arms[k] for k in self.draw.permutation(len(arms))]

    def _process(
        self, subject: Subject, clients: Mapping[str, BackendClient], measurement: Measurement
    ) -> None:
        """The blocks of one process of each arm, added to the measurement."""
        broken = measurement.broken
        timed = {
            arm: subject.make(client, arm) for arm, client in clients.items() if arm not in broken
        }
        measurement.processes.append(0)
        try:
            self._calibrate(subject, timed, broken)
            begun = time.monotonic()
            for block in range(self.rounds.blocks):
                spent = (time.monotonic() - begun) / max(len(timed), 1)
                if block and (spent > self.rounds.seconds or time.monotonic() > self.until):
                    break
                self._block(subject, timed, clients, measurement)
                measurement.processes[-1] += 1
            for arm in timed:
                with put_down(broken, arm):
                    if arm not in broken:
                        self._record(subject, arm, timed[arm], measurement)
        finally:
            for arm, one in timed.items():
                with put_down(broken, arm):
                    one.close()
            for arm in broken:
                measurement.entries.pop(arm, None)

    def _record(self, subject: Subject, arm: str, timed: Timed, measurement: Measurement) -> None:
        """What was measured so far; once its outputs are wrong, it stays so."""
        entry = timed.record(measurement.rounds[arm], self.loops[subject.name])
        if arm not in measurement.entries or measurement.entries[arm]["valid"]:
            backend = {**entry["backend"], "name": subject.backend}
            measurement.entries[arm] = {**entry, "backend": backend}

    def _calibrate(
        self, subject: Subject, timed: Mapping[str, Timed], broken: dict[str, str]
    ) -> None:
        """Find out how many calls make a round, in the first arm that can say."""
        for arm in self._order(list(timed)):
            if subject.name not in self.loops:
                with put_down(broken, arm):
                    self.loops[subject.name] = max(1, timed[arm].start() // BRIEF)

    def _block(
        self,
        subject: Subject,
        timed: Mapping[str, Timed],
        clients: Mapping[str, BackendClient],
        measurement: Measurement,
    ) -> None:
        """All arms in turns, on tensors that lie elsewhere than those of the last block."""
        self._pin(clients)
        distance, broken = displacement(self.draw), measurement.broken
        for arm in self._order([arm for arm in timed if arm not in broken]):
            with put_down(broken, arm):
                move(clients[arm], distance)
                timed[arm].start(self.loops[subject.name])
        well = [arm for arm in timed if arm not in broken]
        for arm in well:
            measurement.blocks.setdefault(arm, []).append([])
        for _ in range(self.rounds.turns):
            for arm in self._order(well):
                with put_down(broken, arm):
                    if arm not in broken:
                        measured = timed[arm].round()
                        measurement.rounds.setdefault(arm, []).append(measured)
                        measurement.blocks[arm][-1].append(measured.wall)

    def _pin(self, clients: Mapping[str, BackendClient]) -> None:
        """Let workers with one thread take their turns on one core, drawn for the block.

        Where each keeps a core of its own, what else runs there makes one version slower.
        """
        if not hasattr(os, "sched_setaffinity"):
            return
        cores = sorted(os.sched_getaffinity(0))
        core = cores[int(self.draw.integers(len(cores)))]
        if all(client.about.threads == 1 for client in clients.values()):
            for client in clients.values():
                with suppress(OSError):  # its process has ended: who asks it next is told
                    os.sched_setaffinity(client.about.pid, {core})


@contextmanager
def clients_of(
    opens: Callable[[str, str], AbstractContextManager[BackendClient]],
    arms: Iterable[str],
    backend: str,
) -> Iterator[tuple[dict[str, BackendClient], dict[str, str]]]:
    """A client of each arm, or why there is none. All are started before the first is asked."""
    clients: dict[str, BackendClient] = {}
    broken: dict[str, str] = {}
    with ExitStack() as stack:
        for arm in arms:
            with put_down(broken, arm):
                clients[arm] = stack.enter_context(opens(arm, backend))
        for arm, client in clients.items():
            with put_down(broken, arm):
                client.about  # noqa: B018 - its framework is imported, with the others'
        yield {arm: client for arm, client in clients.items() if arm not in broken}, broken


@contextmanager
def put_down(broken: dict[str, str], arm: str) -> Iterator[None]:
    """Within: what breaks in an arm is put down, the first time that it does."""
    try:
        yield
    except BROKEN as error:
        broken.setdefault(arm, " ".join(str(error).split()))
