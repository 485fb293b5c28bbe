"""How a rank joins the others: MPI is started, and the plugins of a rank are registered.

Requirements: before any other plugin is configured, since the settings of quiet ranks are read
there; what cannot be started is one line.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from d5test.distributed import provider
from d5test.distributed.watchdog import Watchdog
from d5test.plugin.ranks.agreement import Agreement
from d5test.plugin.ranks.journal import SUPERVISED, Journal, Part
from d5test.plugin.ranks.quiet import Quiet, once
from d5test.plugin.ranks.ranks import COLLECTING, ENDING, RANKS, Ranks
from d5test.plugin.ranks.slowest import Slowest

STARTING = 120.0
"""Seconds for MPI to start."""


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
    # these import MPI, whose settings `connect` has made
    from d5test.plugin.ranks.lockstep import Lockstep
    from d5test.plugin.ranks.together import Together

    ranks = config.stash[RANKS] = _joined(config, world, watchdog)
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
    mpi = world.mpi
    alone = mpi.Query_thread() != mpi.THREAD_MULTIPLE  # then no other thread may call MPI
    left = None if alone else notices.sender
    watchdog.start(folder, supervised=SUPERVISED in os.environ, left=left)
    return ranks
