"""The pytest that was called: it collects, has a cluster run the tests, and reports them.

Requirements: the report, files and exit status are those of one process. A test that kills the
process that runs it is run again; if it kills two, it has failed, with what they printed. Where
workers of Dask die themselves, nobody knows which of their tests it was: those are run again, one
at a time, with nothing beside them, before one is blamed. Each outcome is heard once. When the
scheduler is gone, the run is interrupted, and says what is left.
"""

import logging
import os
import uuid
from collections import Counter
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import dask
import pytest
from distributed import CancelledError, Client, KilledWorker, LocalCluster
from distributed.comm import CommClosedError

from d5test.names import plural
from d5test.plugin.budget import END
from d5test.plugin.cluster.begin import LOCAL
from d5test.plugin.cluster.host import Died, Host, Unfit, run
from d5test.plugin.elsewhere import hear
from d5test.plugin.workers import WORKERS
from d5test.record import usable_cores

CONNECT_SECONDS = 10
DEATHS = 2
"""Processes that a test kills until it has failed."""
POLL, LONELY_SECONDS = 5.0, 120.0
"""Seconds between looks at the workers, and without any until the run is interrupted."""
WORKER_STORY = "a worker of Dask died whenever it ran this test, and nothing else"


class Controller:
    """The plugin of the process that was called with `--on`."""

    def __init__(self, config: pytest.Config, on: str, count: int | None) -> None:
        self.config, self.on, self.count = config, on, count
        self._opened = ExitStack()
        self.name = f"d5test-{uuid.uuid4().hex[:12]}"
        self.deaths: Counter[str] = Counter()
        self.rerun: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Reach the cluster, or start one."""
        try:
            self.client = self._connected()
        except (OSError, ValueError) as error:
            why = " ".join(str(error).split())
            raise pytest.UsageError(f"--on={self.on}: no scheduler answers: {why}") from None

    def _connected(self) -> Any:
        where: Any = self.on
        # what matters is reported below
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        if self.on == LOCAL:
            settings = {"distributed.scheduler.allowed-failures": DEATHS - 1}
            self._opened.enter_context(dask.config.set(settings))
            where = self._opened.enter_context(
                LocalCluster(
                    n_workers=self.count or usable_cores() or 1,
                    threads_per_worker=1,
                    memory_limit=0,  # the framework is in processes of its own
                    dashboard_address=":0",
                    silence_logs=logging.CRITICAL,
                )
            )
        client = Client(where, timeout=CONNECT_SECONDS, set_as_default=False)
        return self._opened.enter_context(client)

    def pytest_report_header(self) -> str:
        """Who runs the tests."""
        threads = sum(self.client.nthreads().values())
        return f"Dask: {plural(threads, 'thread')} of workers, {self.client.dashboard_link}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Have the tests run."""
        if session.testsfailed and not self.config.option.continue_on_collection_errors:
            return None  # pytest says it
        self.config.stash[WORKERS].close()
        arguments = [*self.config.invocation_params.args, f"--rootdir={self.config.rootpath}"]
        folder = str(self.config.invocation_params.dir)
        environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        host = Host(self.name, arguments, folder, environment)
        try:
            self.client.register_plugin(host, self.name)
        except ImportError as error:
            raise pytest.UsageError(f"--on={self.on}: its workers lack d5test: {error}") from None
        self._opened.callback(self._leave)
        locations = {item.nodeid: item.location for item in session.items}
        for test in self._run(session, list(locations), locations):
            self.rerun.append(f"{test}: a worker died that had it; it was run again, alone")
            if self._run(session, [test], locations):
                self._blame(test, locations[test], WORKER_STORY, "")
                _stop(session)
        return True

    def _leave(self) -> None:
        """Have the workers end what they keep for this run."""
        if self.client.status == "running":
            self.client.unregister_worker_plugin(self.name)

    def _run(self, session: Any, tests: list[str], locations: Any) -> list[str]:
        """Run tests at the same time; those that are left, since workers died that had them."""
        done: SimpleQueue[Any] = SimpleQueue()
        tasks = {self._submitted(test, done): test for test in tests}
        suspects = []
        while tasks:
            future = self._next(session, done, len(tasks))
            test = tasks.pop(future)
            try:
                answer = future.result()  # of a task that is over, if its worker still has it
            except KilledWorker:
                suspects.append(test)
                continue
            except (CancelledError, CommClosedError, TimeoutError):
                self._gone(session, len(tasks) + 1)
            if isinstance(answer, Unfit):
                raise pytest.UsageError(answer.why)
            if not isinstance(answer, Died):
                hear(self.config, answer)
            elif self.deaths[test] + 1 < DEATHS:
                self.deaths[test] += 1
                self.rerun.append(f"{test}: {answer.how} at {answer.worker}; it was run again")
                tasks[self._submitted(test, done)] = test
            else:
                story = f"{answer.how}: the process died that ran it, {DEATHS} times"
                self._blame(test, locations[test], story, answer.printed)
            _stop(session)
        return suspects

    def _next(self, session: Any, done: SimpleQueue[Any], count: int) -> Any:
        """The next task that is over; Interrupted where nothing is left that could run one."""
        lonely = 0.0
        while True:
            try:
                return done.get(timeout=POLL)
            except Empty:
                if self.client.status != "running":
                    continue  # its tasks are cancelled, or it comes back
                lonely = 0.0 if self.client.nthreads() else lonely + POLL
                if lonely >= LONELY_SECONDS:
                    why = f"no worker of --on={self.on} is left for {lonely:.0f} s"
                    raise session.Interrupted(f"{why}: {plural(count, 'test')} left") from None

    def _gone(self, session: Any, count: int) -> NoReturn:
        of = plural(session.testscollected, "test")
        raise session.Interrupted(f"the scheduler of --on={self.on} is gone: {count} of {of} left")

    def _submitted(self, test: str, done: SimpleQueue[Any]) -> Any:
        """The task of a test; no other one is ever taken for it."""
        key = f"{test}-{self.name}-{uuid.uuid4().hex}"
        end = self.config.stash.get(END, None)
        future = self.client.submit(run, self.name, test, end, key=key, pure=False)
        future.add_done_callback(done.put)
        return future

    def _blame(self, test: str, location: Any, story: str, printed: str) -> None:
        """Report a test as failed that nobody lived to report."""
        phases: Any = {"setup": "passed", "call": "failed", "teardown": "passed"}
        reports = [
            pytest.TestReport(
                test,
                location,
                {},
                outcome=outcome,
                longrepr=story if outcome == "failed" else None,
                when=when,
                sections=[("the process", printed)] if outcome == "failed" and printed else (),
            )
            for when, outcome in phases.items()
        ]
        hook = self.config.hook
        hook.pytest_runtest_logstart(nodeid=test, location=location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=test, location=location)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What died, and what came of it."""
        if self.rerun:
            terminalreporter.section("Dask", sep="=")
            for line in self.rerun:
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Let go of the cluster; one of our own ends."""
        self._opened.close()


def _stop(session: Any) -> None:
    """Raise what ends the session, if something does."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
