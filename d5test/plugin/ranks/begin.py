"""Is this one of the ranks that mpirun started, or should it start some?

Requirements: MPI is not imported here, nor anything that needs it; what does not go together is
one line and exit status 4.
"""

import os

import pytest

from d5test.distributed.provider import Launch, launched
from d5test.plugin.ranks.quiet import SUPERVISED, once
from d5test.plugin.workers import QUERIES


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register what a rank needs, or a supervisor."""
    for line in (
        "deadline(seconds): how long a phase of the test may take under mpirun",
        "idle(seconds): for how long a rank may do nothing in a phase of the test under mpirun",
    ):
        config.addinivalue_line("markers", line)
    wanted, launch = config.getoption("--np"), launched()
    if any(getattr(config.option, query, None) for query in QUERIES):
        return
    if wanted or launch is not None:
        _refuse(config, launch)
    if launch is not None:
        from d5test.plugin.ranks.join import join

        join(config, launch)
    elif wanted and not config.option.collectonly:
        from d5test.plugin.ranks.supervisor import Supervisor

        config.pluginmanager.register(Supervisor(config, wanted), "d5test-supervisor")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep pytest-mpi from a section of twenty lines: the header has what matters."""
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "MPIPlugin":
            plugin._is_testing_mpi = False  # noqa: SLF001 - there is no option


def _refuse(config: pytest.Config, launch: Launch | None) -> None:
    """Raise UsageError for what ranks cannot do, and say it once."""
    option = config.option
    why = ""
    if getattr(option, "dist", "no") != "no" or getattr(option, "numprocesses", None):
        why = "-n distributes tests; under mpirun every rank runs every test"
    if option.usepdb or getattr(option, "trace", False):
        why = "--pdb and --trace need a terminal, which ranks have not"
    if launch is not None and option.np and SUPERVISED not in os.environ:
        why = "--np starts mpirun itself: call pytest without mpirun"
    if why:
        raise pytest.UsageError(*once(launch, why))
