"""One session: each benchmark on workers of all arms, round by round in turns.

Requirements: the arms share the load, the clock and the order of everything, or the order is drawn
anew; each arm makes the same calls in a round; who cannot run says why, and the others go on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from math import inf

import numpy as np

from d5test.backends.client import Judged
from d5test.backends.exchange import Round
from d5test.gate.bout import Bout
from d5test.gate.versions import NEW
from d5test.timed import BRIEF, BROKEN, Subject, Timed, displacement, move


@dataclass(frozen=True)
class Rounds:
    """How often an arm is timed: `turns` in each of `blocks`.

    The tensors of a block are new ones, elsewhere in memory. There are fewer blocks, but `least`,
    if an arm would take longer than `seconds`; `LONGER` times as many of both if the blocks
    differ so much that what they say is not settled.
    """

    blocks: int
    turns: int
    least: int
    seconds: float


FULL = Rounds(blocks=20, turns=12, least=4, seconds=3.0)
SHORT = Rounds(blocks=10, turns=10, least=2, seconds=2.0)
"""Of a pair of fresh processes: pairs are many."""
LONGER = 3
SEEN = 5
"""Blocks beyond those of `Rounds` from one look at what they differ by to the next."""


@dataclass
class Session:
    """What is measured in it.

    arms    who takes part; `order` is drawn from `draw`, for the start of the workers too
    loops   calls a round by benchmark: found once, the same in all arms and sessions
    error   of the newest arm's shift, above which there are more blocks
    """

    arms: Sequence[str]
    open: Callable[[str, str], Judged]
    draw: np.random.Generator
    loops: dict[str, int]
    rounds: Rounds = FULL
    error: float = inf
    until: float = inf
    """When to stop, by `time.monotonic`: benchmarks that have not begun then are left out."""

    def measure(self, subjects: Sequence[Subject]) -> dict[str, Bout]:
        """The bouts of the benchmarks that had their turn."""
        bouts: dict[str, Bout] = {}
        if time.monotonic() > self.until:
            return bouts
        for backend, group in groupby(subjects, lambda subject: subject.backend):
            with self._clients(backend) as (clients, broken):
                for subject in group:
                    if time.monotonic() > self.until:
                        return bouts
                    bouts[subject.name] = self._bout(subject, clients, broken)
        return bouts

    def _order(self, arms: Sequence[str]) -> list[str]:
        return [arms[k] for k in self.draw.permutation(len(arms))]

    @contextmanager
    def _clients(self, backend: str) -> Iterator[tuple[Mapping[str, Judged], Mapping[str, str]]]:
        """A fresh worker of each arm, or why there is none."""
        clients: dict[str, Judged] = {}
        broken: dict[str, str] = {}
        with ExitStack() as stack:
            for arm in self._order(self.arms):
                try:
                    client = stack.enter_context(self.open(arm, backend))
                    client.about  # noqa: B018 - the framework is imported now
                    clients[arm] = client
                except BROKEN as error:
                    broken[arm] = " ".join(str(error).split())
            yield clients, broken

    def _bout(
        self, subject: Subject, clients: Mapping[str, Judged], broken: Mapping[str, str]
    ) -> Bout:
        bout = Bout(broken=dict(broken))
        timed = {arm: subject.make(client, arm) for arm, client in clients.items()}
        try:
            self._calibrate(subject, timed, bout)
            rounds: dict[str, list[Round]] = {arm: [] for arm in timed}
            begun = time.monotonic()
            for block in range(LONGER * self.rounds.blocks):
                if self._over(bout, block, (time.monotonic() - begun) / max(len(timed), 1)):
                    break
                self._block(subject, timed, clients, bout, rounds)
            for arm in timed:
                with _told(bout, arm):
                    if arm not in bout.broken:
                        entry = timed[arm].record(rounds[arm], self.loops[subject.name])
                        entry["backend"] = {**entry["backend"], "name": subject.backend}
                        bout.entries[arm] = entry
        finally:
            for arm, one in timed.items():
                with _told(bout, arm):
                    one.close()
        return bout

    def _over(self, bout: Bout, blocks: int, seconds: float) -> bool:
        """Whether so many blocks, which took an arm so many seconds, are enough."""
        given = self.rounds
        if blocks < given.least:
            return False
        if seconds > LONGER * given.seconds or time.monotonic() > self.until:
            return True
        if blocks < given.blocks and seconds < given.seconds:
            return False
        if bout.broken:
            return True
        if blocks > given.blocks and blocks % SEEN:
            return False
        return bout.longer(NEW, [arm for arm in self.arms if arm != NEW]).error <= self.error

    def _calibrate(self, subject: Subject, timed: Mapping[str, Timed], bout: Bout) -> None:
        """Find out how many calls make a round, in the first arm that can say."""
        for arm in self._order(list(timed)):
            if subject.name not in self.loops:
                with _told(bout, arm):
                    self.loops[subject.name] = max(1, timed[arm].start() // BRIEF)

    def _block(
        self,
        subject: Subject,
        timed: Mapping[str, Timed],
        clients: Mapping[str, Judged],
        bout: Bout,
        rounds: Mapping[str, list[Round]],
    ) -> None:
        """All arms in turns, on tensors that lie elsewhere than those of the last block."""
        self._pin(clients)
        distance = displacement(self.draw)
        for arm in self._order([arm for arm in timed if arm not in bout.broken]):
            with _told(bout, arm):
                move(clients[arm], distance)
                timed[arm].start(self.loops[subject.name])
        well = [arm for arm in timed if arm not in bout.broken]
        for arm in well:
            bout.blocks.setdefault(arm, []).append([])
        for _ in range(self.rounds.turns):
            for arm in self._order(well):
                with _told(bout, arm):
                    if arm not in bout.broken:
                        rounds[arm].append(timed[arm].round())
                        bout.blocks[arm][-1].append(rounds[arm][-1].wall)

    def _pin(self, clients: Mapping[str, Judged]) -> None:
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
def _told(bout: Bout, arm: str) -> Iterator[None]:
    """Within: what breaks in an arm is put down, the first time that it does."""
    try:
        yield
    except BROKEN as error:
        bout.broken.setdefault(arm, " ".join(str(error).split()))
