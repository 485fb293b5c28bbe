"""One rank speaks: the others write nothing, no report on the terminal and no file.

What they would write is what rank 0 writes, since outcomes are agreed; what they read (the cache
of --last-failed, say) they read as rank 0 does, so that all collect the same. Under a supervisor
none speaks.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

from d5test.distributed.provider import Launch

SUPERVISED = "D5TEST_SUPERVISED"
"""The variable that holds the folder of the supervisor that started this mpirun."""
FILES = (
    "xmlpath", "htmlpath", "report_log", "json_report_file", "benchmark_json", "benchmark_save",
    "benchmark_autosave", "benchmark_histogram", "record_known", "log_file", "outcomes",
)  # fmt: skip
"""Options, of pytest and of its plugins, that name a file to write."""


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
            write_nothing(option)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Take the terminal and the cache away."""
        if not self.speaks:
            hush(session.config)


def write_nothing(option: Any) -> None:
    """Leave all files out that options name."""
    for name in FILES:
        if getattr(option, name, None):
            setattr(option, name, None)


def hush(config: pytest.Config) -> None:
    """Take the terminal and the cache away."""
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
