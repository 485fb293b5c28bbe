"""`--np=N`: pytest without MPI, which has mpirun run the tests and reports what comes of them.

Requirements: a run that loses a rank loses one test: it fails with the rank, the line where it
stood, and what mpirun said, and mpirun starts again with the tests after it; everything that
pytest reports (the terminal, JUnit, the JSON of pytest-benchmark) is as it is without ranks. An
mpirun that dies before any test is one line.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from d5test.distributed import sentry
from d5test.plugin.ranks.journal import PLAN, SUPERVISED, Reader
from d5test.plugin.ranks.mpirun import Mpirun, found
from d5test.plugin.ranks.replay import Replay

POLL = 0.05
SHOWN = 40
"""Lines of what mpirun said that are shown with a crash."""


class Supervisor:
    """The plugin of the process that was called with `--np`."""

    def __init__(self, config: pytest.Config, size: int) -> None:
        self.config, self.size = config, size
        self.facts: Mapping[str, Any] = {}
        if found() is None:
            raise pytest.UsageError("--np needs mpirun: pip install mpi4py mpich")

    def pytest_report_header(self) -> str:
        """Who runs the tests."""
        return f"MPI: {self.size} ranks, started by {found()}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """The ranks collect."""
        session.items = []
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Start mpirun until there is nothing left to do."""
        left: list[str] | None = None
        while left is None or left:
            with tempfile.TemporaryDirectory(prefix="d5test-ranks-") as name:
                if left is not None:
                    (Path(name) / PLAN).write_text(json.dumps(left))
                left = self._launched(Path(name), Replay(session, again=left is not None))
        return True

    def _launched(self, folder: Path, replay: Replay) -> list[str]:
        """Run mpirun once, report, and return what is left to do."""
        command = [sys.executable, "-m", "pytest", *self.config.invocation_params.args]
        command.append(f"--rootdir={self.config.rootpath}")
        where, reader = self.config.invocation_params.dir, Reader(folder)
        session: Any = replay.session
        with (
            _log(folder, show=self.config.option.capture == "no") as log,
            Mpirun(self.size, command, {SUPERVISED: str(folder)}, where, log) as mpirun,
        ):
            status = None
            while status is None:
                time.sleep(POLL)
                status = mpirun.status()
                for entry in reader.new():
                    replay.hear(entry)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        self.facts = replay.facts
        if replay.running is not None:
            replay.blame(_story(folder), "\n".join(_said(folder)[-SHOWN:]))
            return replay.left
        self._judge_end(replay, folder, status)
        return []

    def _judge_end(self, replay: Replay, folder: Path, status: int) -> None:
        """Raise unless the launch did all that it had to, and ended by itself."""
        session = replay.session
        if replay.ids is None and replay.broken:
            raise session.Interrupted(f"{replay.broken} errors during collection")
        if replay.ids is None:
            said = _said(folder)
            told = [line for line in said if line.startswith("ERROR: ")] or said
            why = told[-1].removeprefix("ERROR: ") if told else f"mpirun's status is {status}"
            raise pytest.UsageError(why)
        if replay.left or replay.status is None or (status and not replay.status):
            why = "" if replay.status is not None else f": {_story(folder)}"
            text = f"the ranks ended with {len(replay.left)} tests left{why}"
            pytest.exit(text, replay.status or status or 1)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Which MPI, and on what."""
        machine_info["mpi"] = dict(self.facts)


@contextmanager
def _log(folder: Path, *, show: bool) -> Iterator[IO[bytes] | None]:
    """Where mpirun writes: a file, or with --capture=no the terminal."""
    if show:
        yield None
        return
    with (folder / "log").open("wb") as file:
        yield file


def _said(folder: Path) -> list[str]:
    log = folder / "log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if line.strip()]


def _story(folder: Path) -> str:
    ends = sentry.read(folder / sentry.ENDS)
    return sentry.story(ends) if ends else "mpirun ended, and no rank said why"
