"""Beside a worker of Dask: pytests that have imported the framework and wait for a test.

Requirements: a pytest is started when it is first needed, and kept; no more of them than threads
of the worker; one that dies is told with what it printed last, and the next test gets another one.
None outlives its worker.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from distributed import Worker, WorkerPlugin, get_worker

from d5test.plugin.cluster.begin import SERVED

SHOWN = 120
"""Lines of what a pytest printed that are told: a traceback of faulthandler has up to 100."""
EXIT_SECONDS = 5.0


class Died(NamedTuple):
    """A pytest ended while it ran a test.

    how      signal or status
    printed  its last lines
    worker   the worker that it ran beside
    """

    how: str
    printed: str
    worker: str


class Unfit(NamedTuple):
    """No pytest can be started beside this worker, or it has other tests; why, in a line."""

    why: str


Answer = list[dict[str, Any]] | Died | Unfit


class Served:
    """A pytest and the pipes to it."""

    def __init__(self, arguments: Sequence[str], folder: str, environment: dict[str, str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *arguments],
                cwd=folder,
                env={**os.environ, **environment, SERVED: f"{theirs_in},{theirs_out}"},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._out = os.fdopen(ours_out, "w", encoding="utf-8")
        self._in = os.fdopen(ours_in, encoding="utf-8")

    def answer(self) -> dict[str, Any] | None:
        """The next line; None if it has ended."""
        line = self._in.readline()
        return json.loads(line) if line.endswith("\n") else None

    def ask(self, test: str, end: float | None) -> dict[str, Any] | None:
        """Run a test, until `end` at most; None if it has ended."""
        with suppress(BrokenPipeError):  # there is no answer then
            self._out.write(json.dumps({"test": test, "end": end}) + "\n")
            self._out.flush()
        return self.answer()

    def printed(self) -> list[str]:
        """What it printed last."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()][-SHOWN:]

    def how(self) -> str:
        """How it ended."""
        status = self.process.wait(EXIT_SECONDS)
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    def close(self) -> None:
        """End it, and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in (self._out, self._in, self._log):
            with suppress(BrokenPipeError):
                file.close()


class Host(WorkerPlugin):  # type: ignore[misc]
    """What each worker of the cluster has, from its start to its end."""

    def __init__(
        self, name: str, arguments: Sequence[str], folder: str, environment: dict[str, str]
    ) -> None:
        self.name = name
        self.arguments, self.folder, self.environment = list(arguments), folder, environment

    def setup(self, worker: Worker) -> None:
        """Nothing is started yet: the worker's loop must not wait."""
        self.idle: queue.SimpleQueue[Served] = queue.SimpleQueue()
        self.every: list[Served] = []

    def teardown(self, worker: Worker) -> None:
        """End all."""
        for served in self.every:
            served.close()

    def run(self, test: str, end: float | None, worker: str) -> Answer:
        """Run a test; its reports, or why there are none."""
        try:
            served = self.idle.get_nowait()
        except queue.Empty:
            try:
                served = Served(self.arguments, self.folder, self.environment)
            except OSError as error:
                return Unfit(f"{worker}: {error}")
            self.every.append(served)
            if served.answer() is None:
                printed = served.printed()
                errors = [line for line in printed if line.startswith("ERROR: ")] or printed
                self._drop(served)
                why = errors[-1].removeprefix("ERROR: ") if errors else "pytest said nothing"
                return Unfit(f"{worker}: {why}")
        answer = served.ask(test, end)
        if answer is None:
            died = Died(served.how(), "\n".join(served.printed()), worker)
            self._drop(served)
            return died
        self.idle.put(served)
        if "unknown" in answer:
            return Unfit(f"{worker} has collected other tests, not {answer['unknown']}")
        reports: list[dict[str, Any]] = answer["reports"]
        return reports

    def _drop(self, served: Served) -> None:
        served.close()
        self.every.remove(served)


def run(host: str, test: str, end: float | None) -> Answer:
    """The task: run a test beside the worker that this is."""
    worker = get_worker()
    here: Host = worker.plugins[host]
    return here.run(test, end, worker.address)
