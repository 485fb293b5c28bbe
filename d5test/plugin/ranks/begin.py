"""Is this one of the ranks that mpirun started, or should it start some? Costs others nothing.

Requirements: MPI is not imported here, nor anything that needs it; what does not go together is
one line and exit status 4. One rank speaks; the others write nothing: no report on the terminal,
no file. What they would write is what rank 0 writes, since outcomes are agreed; what they read
(the cache of --last-failed, say) they read as rank 0 does, so that all collect the same. Under a
supervisor none speaks.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

from d5test.distributed.provider import Launch, launched
from d5test.plugin.workers import QUERIES

SUPERVISED = "D5TEST_SUPERVISED"
"""The variable that holds the folder of the supervisor that started this mpirun."""
FILES = (
    "xmlpath", "htmlpath", "report_log", "json_report_file", "benchmark_json", "benchmark_save",
    "benchmark_autosave", "benchmark_histogram", "record_known", "log_file",
)  # fmt: skip
"""Options, of pytest and of its plugins, that name a file to write."""


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
        from d5test.plugin.ranks.ranks import join

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


class Quiet:
    """The plugin of each rank."""

    def __init__(self, config: pytest.Config, rank: int, *, speaks: bool) -> None:
        self.speaks = speaks
        option = config.option
        option.with_mpi = True  # pytest-mpi skips the tests that are marked otherwise
        option.in_process = True  # nothing forks below MPI
        option.np = None  # a rank supervises nobody
        if option.basetemp:
            folder = Path(option.basetemp)
            folder.mkdir(parents=True, exist_ok=True)
            option.basetemp = str(folder / f"rank{rank}")
        if not speaks:
            for name in FILES:
                if getattr(option, name, None):
                    setattr(option, name, None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Take the terminal and the cache away."""
        if self.speaks:
            return
        config = session.config
        reporter = config.pluginmanager.unregister(name="terminalreporter")
        if reporter is not None:
            config.pluginmanager.register(Silent(config, reporter), "terminalreporter")
        cache: Any = getattr(config, "cache", None)
        if cache is not None:
            cache.set = lambda key, value: None


class Silent:
    """A terminal reporter without hooks, whose lines go nowhere: summaries are not even made."""

    def __init__(self, config: pytest.Config, reporter: Any) -> None:
        nowhere = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
        reporter._tw = create_terminal_writer(config, nowhere)  # noqa: SLF001
        self._reporter = reporter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reporter, name)


def once(launch: Launch | None, why: str) -> tuple[str, ...]:
    """The arguments of an error that all ranks raise, so that pytest prints it at one of them."""
    return () if launch is not None and launch.rank else (why,)
