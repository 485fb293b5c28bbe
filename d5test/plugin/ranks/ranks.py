"""This rank: what it shares with the others, and how they agree.

Requirements: what each rank has to say at one stage of the run is told to all: that costs one byte
a rank where nobody has anything to say, and never waits for ever for a rank that is at another
stage, but says which; a rank that waits leaves its core to the others. A test gets a communicator
on which no message of another test is under way; the ranks agree on the end once, however pytest
ends.
"""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from d5test.distributed import provider
from d5test.distributed.watchdog import Watchdog
from d5test.plugin.ranks.journal import Journal

RANKS = pytest.StashKey["Ranks"]()
COLLECTING, ENDING = 300.0, 30.0
"""Seconds for frameworks to be imported, and for MPI to end."""
STAGES = ("collection", "start", "setup", "call", "example", "teardown", "end")
SHORTEST, LONGEST = 1e-5, 2e-4
"""Seconds between polls: each twice the one before."""


class Apart(Exception):
    """The ranks are at different stages of the run, and cannot come together again.

    stages  of each rank
    """

    def __init__(self, stages: tuple[str, ...]) -> None:
        self.stages = stages
        words = ", ".join(f"rank {rank}: {stage}" for rank, stage in enumerate(stages))
        super().__init__(f"the ranks are at different stages of the run ({words})")


def _wait(request: Any) -> None:
    pause = SHORTEST
    while not request.Test():
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)


@dataclass
class Ranks:
    """What the ranks share.

    world      all ranks
    watchdog   of this rank
    comm       where every rank says the same number of things
    notices    where they tell each other that they leave a test
    """

    world: provider.World
    watchdog: Watchdog
    comm: Any
    notices: Any
    own: Any
    """A communicator for the plugin's own measures, with a guard."""
    journal: Journal | None = None
    """At rank 0 under a supervisor."""
    used: bool = False
    """Whether this test has asked for its communicator; after an exchange: at any rank."""
    _communicator: Any = None
    _old: list[Any] = field(default_factory=list)
    _ended: bool = False

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self.world.launch.rank

    @property
    def communicator(self) -> Any:
        """A guarded communicator of all ranks for the test that runs."""
        self.used = True
        return self._communicator

    def exchange(
        self, stage: str, remark: Mapping[str, Any] | None
    ) -> list[dict[str, Any] | None] | None:
        """The remarks of all ranks; `None` if there is none. Raises `Apart`, at all ranks."""
        code = 4 * STAGES.index(stage) + 2 * self.used + (remark is not None)
        every = np.empty(self.comm.size, np.uint8)
        _wait(self.comm.Iallgather(np.array([code], np.uint8), every))
        stages = tuple(STAGES[code // 4] for code in every)
        if len(set(stages)) > 1:
            raise Apart(stages)
        self.used = bool((every & 2).any())
        return self._remarks(remark) if (every & 1).any() else None

    def _remarks(self, remark: Mapping[str, Any] | None) -> list[dict[str, Any] | None]:
        text = np.frombuffer(json.dumps(remark).encode(), np.uint8)
        sizes = np.empty(self.comm.size, np.int64)
        _wait(self.comm.Iallgather(np.array([text.size], np.int64), sizes))
        every = np.empty(sizes.sum(), np.uint8)
        _wait(self.comm.Iallgatherv(text, [every, sizes]))
        parts = np.split(every, np.cumsum(sizes)[:-1])
        return [json.loads(part.tobytes()) for part in parts]

    def renew(self, *, spoilt: bool) -> None:
        """The next communicator; all ranks call it together.

        What was abandoned on a spoilt one may still arrive there: it is kept, and not freed.
        """
        from d5test.distributed.guarded import Guarded

        old = self._communicator
        self._communicator = Guarded(self._duplicate(), self.notices)
        if spoilt:
            self._old += [old, self.own]
            self.own = Guarded(self._duplicate(), self.notices)
        elif old is not None:
            _drain(old.raw)
            old.Free()
        self.used = False

    def _duplicate(self) -> Any:
        comm, request = self.comm.Idup()
        _wait(request)
        return comm

    def end(self, status: int, why: str) -> tuple[int, str]:
        """Agree on the exit status, once: the largest of all ranks', and the reason of rank 0."""
        if self._ended:
            return status, why
        self._ended = True
        mine = {"status": status, "why": why} if status else None
        at = "the end of its tests, waiting for the others"
        self.watchdog.enter("end of the run", COLLECTING, at, waiting=True)
        remarks = None
        while remarks is None:
            with suppress(Apart):  # the others come when they know that this one does not go on
                remarks = self.exchange("end", mine) or [None]
        agreed = max((int(remark["status"]) for remark in remarks if remark), default=status)
        if self.journal is not None:
            self.journal.end(agreed)
        self.watchdog.end(ENDING)
        return agreed, remarks[0]["why"] if remarks[0] else ""


def _drain(comm: Any) -> None:
    """Receive what nobody has: a freed communicator's messages would reach the next one."""
    from mpi4py import MPI

    status = MPI.Status()
    while comm.Iprobe(status=status):
        room = bytearray(status.Get_count(MPI.BYTE))
        comm.Recv([room, MPI.BYTE], status.source, status.tag)
