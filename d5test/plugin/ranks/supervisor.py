"""`--np=N`: pytest without MPI, which has mpirun run the tests and reports what comes of them.

Requirements: a run that loses a rank loses one test: it fails with the rank, the line where it
stood, and what mpirun said, and mpirun starts again with the tests after it; everything that
pytest reports (the terminal, JUnit, the JSON of pytest-benchmark) is as it is without ranks. An
mpirun that dies before any test is one line. The mpirun of this interpreter's environment is
called, if it has one; as root and with more ranks than cores, too, which Open MPI refuses unless
allowed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from d5test.distributed import sentry
from d5test.plugin.ranks.journal import PLAN, Reader, Replay
from d5test.plugin.ranks.quiet import SUPERVISED

ALLOWED = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
EXIT_SECONDS = 5.0
"""Seconds for mpirun to end its ranks."""
LOG = "log"
POLL = 0.05
SHOWN = 40
"""Lines of what mpirun said that are shown with a crash."""


class Supervisor:
    """The plugin of the process that was called with `--np`."""

    def __init__(self, config: pytest.Config, size: int) -> None:
        self.config, self.size = config, size
        self.facts: Mapping[str, Any] = {}
        program = mpirun()
        if program is None:
            raise pytest.UsageError("--np needs mpirun: pip install mpi4py mpich")
        self.program = program

    def pytest_report_header(self) -> str:
        """Who runs the tests."""
        return f"MPI: {self.size} ranks, started by {self.program}"

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
        invocation = self.config.invocation_params
        command = [self.program, "-n", str(self.size), sys.executable, "-m", "pytest"]
        command += [*invocation.args, f"--rootdir={self.config.rootpath}"]
        reader = Reader(folder)
        session: Any = replay.session
        shown = self.config.option.capture == "no"  # else mpirun writes to a file
        with (
            nullcontext() if shown else (folder / LOG).open("wb") as log,
            _running(command, {SUPERVISED: str(folder)}, invocation.dir, log) as process,
        ):
            status = None
            while status is None:
                time.sleep(POLL)
                status = process.poll()
                for entry in reader.new():
                    replay.hear(entry)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        self.facts = replay.facts
        if replay.running is not None:
            replay.blame(_story(folder), "\n".join(_printed(folder)[-SHOWN:]))
            return replay.left
        self._judge_end(replay, folder, status)
        return []

    def _judge_end(self, replay: Replay, folder: Path, status: int) -> None:
        """Raise unless the launch did all that it had to, and ended by itself."""
        if replay.ids is None and replay.broken:
            raise replay.session.Interrupted(f"{replay.broken} errors during collection")
        if replay.ids is None:
            printed = _printed(folder)
            errors = [line for line in printed if line.startswith("ERROR: ")] or printed
            why = errors[-1].removeprefix("ERROR: ") if errors else f"mpirun's status is {status}"
            raise pytest.UsageError(why)
        if replay.left or replay.status is None or (status and not replay.status):
            why = "" if replay.status is not None else f": {_story(folder)}"
            text = f"the ranks ended with {len(replay.left)} tests left{why}"
            pytest.exit(text, replay.status or status or 1)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Which MPI, and on what."""
        machine_info["mpi"] = dict(self.facts)


def mpirun() -> str | None:
    """The mpirun to call."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


@contextmanager
def _running(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, log: IO[bytes] | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Within: the command runs. No process of it outlives this context."""
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    process = subprocess.Popen(
        command,
        env={**ALLOWED, **os.environ, **variables, "PATH": path},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT if log is not None else None,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(EXIT_SECONDS)


def _printed(folder: Path) -> list[str]:
    log = folder / LOG
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if line.strip()]


def _story(folder: Path) -> str:
    ends = sentry.read(folder / sentry.ENDS)
    return sentry.story(ends) if ends else "mpirun ended, and no rank said why"
