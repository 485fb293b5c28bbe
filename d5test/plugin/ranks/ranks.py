"""This rank, and what it shares with the others for the run.

Requirements: a test gets a communicator on which no message of another test is under way; the
ranks agree on the end once, however pytest ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from d5test.distributed import provider
from d5test.distributed.watchdog import Watchdog
from d5test.plugin.ranks.agreement import Agreement, Apart
from d5test.plugin.ranks.journal import Journal

RANKS = pytest.StashKey["Ranks"]()
COLLECTING, ENDING = 300.0, 30.0
"""Seconds for frameworks to be imported, and for MPI to end."""


@dataclass
class Ranks:
    """What the ranks share.

    world      all ranks
    watchdog   of this rank
    agreement  where they tell each other what happened
    notices    where they tell each other that they leave a test
    """

    world: provider.World
    watchdog: Watchdog
    agreement: Agreement
    notices: Any
    own: Any
    """A communicator for the plugin's own measures, with a guard."""
    journal: Journal | None = None
    """At rank 0 under a supervisor."""
    _communicator: Any = None
    _used: bool = False
    _old: list[Any] = field(default_factory=list)
    _ended: bool = False

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self.world.launch.rank

    @property
    def communicator(self) -> Any:
        """A guarded communicator of all ranks for the test that runs."""
        self._used = True
        return self._communicator

    @property
    def used(self) -> bool:
        """Whether this test has asked for its communicator."""
        return self._used

    def renew(self, *, spoilt: bool) -> None:
        """The next communicator; all ranks call it together.

        What was abandoned on a spoilt one may still arrive there: it is kept, and not freed.
        """
        from d5test.distributed.guarded import Guarded

        old = self._communicator
        self._communicator = Guarded(self.agreement.comm.Dup(), self.notices)
        if spoilt:
            self._old += [old, self.own]
            self.own = Guarded(self.agreement.comm.Dup(), self.notices)
        elif old is not None:
            _drain(old.raw)
            old.Free()
        self._used = False

    def end(self, status: int, why: str) -> tuple[int, str]:
        """Agree on the exit status, once: the largest of all ranks', and the reason of rank 0."""
        if self._ended:
            return status, why
        self._ended = True
        mine = {"status": status, "why": why} if status else None
        at = "the end of its tests, waiting for the others"
        self.watchdog.enter("end of the run", COLLECTING, at, waiting=True)
        while True:
            try:
                said = self.agreement.exchange("end", mine) or [None]
            except Apart:  # the others come when they know that this one does not go on
                continue
            break
        agreed = max((int(remark["status"]) for remark in said if remark), default=status)
        if self.journal is not None:
            self.journal.end(agreed)
        self.watchdog.end(ENDING)
        return agreed, said[0]["why"] if said[0] else ""


def _drain(comm: Any) -> None:
    """Receive what nobody has: a freed communicator's messages would reach the next one."""
    from mpi4py import MPI

    status = MPI.Status()
    while comm.Iprobe(status=status):
        room = bytearray(status.Get_count(MPI.BYTE))
        comm.Recv([room, MPI.BYTE], status.source, status.tag)
