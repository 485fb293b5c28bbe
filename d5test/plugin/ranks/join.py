"""How a rank joins the others: MPI is started, and what a rank needs is registered.

Requirements: MPI is started before any other plugin is configured, since the settings of quiet
ranks are read there; what cannot be started is one line.
"""

import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from d5test.distributed import provider
from d5test.distributed.watchdog import Watchdog
from d5test.plugin.ranks.journal import Journal, Part
from d5test.plugin.ranks.quiet import SUPERVISED, Quiet, once
from d5test.plugin.ranks.ranks import COLLECTING, ENDING, RANKS, Ranks

STARTING = 120.0
"""Seconds for MPI to start."""


def join(config: pytest.Config, launch: provider.Launch) -> None:
    """Start MPI and register the plugins of a rank. UsageError with one line if there is none."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        watchdog = Watchdog(launch.rank)
    watchdog.enter("start of MPI", STARTING, "the start of MPI")
    try:
        world = provider.connect(launch)
    except provider.Unusable as error:
        watchdog.end(ENDING)
        raise pytest.UsageError(*once(launch, str(error))) from None
    # these import MPI, whose settings `connect` has made
    from d5test.distributed.guarded import Guarded, Notices
    from d5test.plugin.ranks.lockstep import Lockstep, Slowest
    from d5test.plugin.ranks.together import Together

    everyone, mpi, supervisor = world.mpi.COMM_WORLD, world.mpi, os.environ.get(SUPERVISED)
    notices = Notices(everyone.Dup(), crowded=launch.oversubscribed)
    folder = supervisor or everyone.bcast(
        tempfile.mkdtemp(prefix="d5test-ranks-") if everyone.rank == 0 else None
    )
    guarded = Guarded(everyone.Dup(), notices)
    ranks = config.stash[RANKS] = Ranks(world, watchdog, everyone.Dup(), notices, guarded)
    ranks.renew(spoilt=False)
    alone = mpi.Query_thread() != mpi.THREAD_MULTIPLE  # then no other thread may call MPI
    left = None if alone else notices.sender
    watchdog.start(folder, supervised=supervisor is not None, left=left)
    register = config.pluginmanager.register
    together = Together(config, ranks)
    register(together, "d5test-ranks")
    register(Lockstep(together), "d5test-lockstep")
    register(Quiet(config, ranks.rank, speaks=not (ranks.rank or supervisor)), "d5test-quiet")
    if supervisor:
        register(Part(Path(supervisor)), "d5test-part")
        if not ranks.rank:
            ranks.journal = Journal(config, Path(supervisor), world.facts())
            register(ranks.journal, "d5test-journal")
    if config.pluginmanager.hasplugin("benchmark"):
        register(Slowest(ranks), "d5test-slowest")
    watchdog.enter("collection", COLLECTING, "the collection of the tests")
