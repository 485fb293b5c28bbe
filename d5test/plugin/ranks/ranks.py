"""This rank, and what it shares with the others for the run.

Requirements: joined before any other plugin is configured, since the settings of quiet ranks are
read there; left when pytest ends, however it ends; a test gets a communicator on which no message
of another test is under way.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from d5test.distributed import provider
from d5test.distributed.watchdog import Watchdog
from d5test.plugin.ranks.agreement import Agreement, Apart
from d5test.plugin.ranks.begin import SUPERVISED
from d5test.plugin.ranks.journal import Journal, Part
from d5test.plugin.ranks.quiet import Quiet, once

RANKS = pytest.StashKey["Ranks"]()
STARTING, COLLECTING, ENDING = 120.0, 300.0, 30.0
"""Seconds for MPI to start, for frameworks to be imported, and for MPI to end."""


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
        self.watchdog.enter("end of the run", COLLECTING, "the end of its tests, waiting")
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


def join(config: pytest.Config, launch: provider.Launch) -> None:
    """Start MPI and register the plugins of a rank. UsageError with one line if there is none."""
    with ExitStack() as uncaptured:
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            uncaptured.enter_context(capture.global_and_fixture_disabled())
        watchdog = Watchdog(launch.rank)
    watchdog.enter("start of MPI", STARTING, "the start of MPI")
    try:
        world = provider.connect(launch)
    except provider.Unusable as error:
        watchdog.end(ENDING)
        raise pytest.UsageError(*once(launch, str(error))) from None
    ranks = config.stash[RANKS] = _joined(config, world, watchdog)
    from d5test.plugin.ranks.lockstep import Lockstep
    from d5test.plugin.ranks.together import Together

    register = config.pluginmanager.register
    together = Together(config, ranks)
    register(together, "d5test-ranks")
    register(Lockstep(together), "d5test-lockstep")
    supervisor = os.environ.get(SUPERVISED)
    register(Quiet(config, ranks.rank, speaks=not (ranks.rank or supervisor)), "d5test-quiet")
    if supervisor:
        register(Part(Path(supervisor)), "d5test-part")
        if not ranks.rank:
            ranks.journal = Journal(config, Path(supervisor), world.facts())
            register(ranks.journal, "d5test-journal")
    if config.pluginmanager.hasplugin("benchmark"):
        from d5test.plugin.ranks.slowest import Slowest

        register(Slowest(ranks), "d5test-slowest")
    watchdog.enter("collection", COLLECTING, "the collection of the tests")


def _joined(config: pytest.Config, world: provider.World, watchdog: Watchdog) -> Ranks:
    from d5test.distributed.guarded import Guarded, Notices

    everyone = world.mpi.COMM_WORLD
    notices = Notices(everyone.Dup(), crowded=world.launch.oversubscribed)
    folder = os.environ.get(SUPERVISED) or everyone.bcast(
        tempfile.mkdtemp(prefix="d5test-ranks-") if everyone.rank == 0 else None
    )
    ranks = Ranks(
        world, watchdog, Agreement(everyone.Dup()), notices, Guarded(everyone.Dup(), notices)
    )
    ranks.renew(spoilt=False)
    watchdog.start(folder, supervised=SUPERVISED in os.environ)
    return ranks
