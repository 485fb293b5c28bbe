"""The ranks go through the run together: one collection, one outcome a test, one exit status.

Requirements: a test that fails at one rank fails at all, and rank 0 reports it once; a rank that
leaves a test frees those that wait for it; a phase of a test that lasts longer than its deadline
fails at the line where each rank stands, and where a rank cannot be stopped so, it is killed and
its sentry tells.
"""

from __future__ import annotations

import hashlib
import signal
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import pytest
from _pytest import runner
from _pytest.outcomes import TEST_OUTCOME

from d5test.distributed.guarded import Left
from d5test.plugin.budget import END, remaining
from d5test.plugin.ranks.ranks import COLLECTING, Apart, Ranks
from d5test.plugin.ranks.verdict import Remark, apply

DEADLINE = 12.0
"""Seconds for a phase of a test, unless it is marked or the command line says otherwise."""
GRACE = 3.0
"""Seconds that a rank has to leave a test once its deadline is over. Then it is killed."""


class Overdue(BaseException):
    """A phase of a test lasted longer than its deadline, or this rank did nothing in it for long.

    Not caught by `except Exception`.
    """


def _within_deadline(phase: str) -> Any:
    """The hook around a phase of a test."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def hook(self: Together, item: pytest.Item) -> Generator[None, Any, Any]:
        with self.within(item, phase):
            return (yield)

    return hook


class Together:
    """The plugin of each rank."""

    def __init__(self, config: pytest.Config, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks
        self._running = ""
        self._errors: dict[str, str] = {}
        self._limit, self._idle, self._inside = 0.0, 0.0, False
        signal.signal(signal.SIGALRM, self._overdue)
        # else one that ends a finalizer keeps pytest from those that are left, and the next test
        # gets the fixtures of this one
        vars(runner)["TEST_OUTCOME"] = (*TEST_OUTCOME, Left, Overdue)

    def pytest_report_header(self) -> str:
        """What the ranks are."""
        facts = self.ranks.world.facts()
        settings = "".join(f", {name}={value}" for name, value in facts["settings"].items())
        return f"MPI: {facts['library']}, {facts['ranks']} ranks, {facts['cores']} cores{settings}"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected."""
        if report.failed:
            self._errors[report.nodeid] = report.longreprtext

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Agree on what is collected, and on what cannot be."""
        result = yield
        ids = [item.nodeid for item in session.items]
        digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()
        remarks = self.exchange("collection", {"digest": digest, "errors": dict(self._errors)})
        for rank, remark in enumerate(remarks):
            for nodeid, text in remark["errors"].items():
                if nodeid not in self._errors:
                    longrepr: Any = f"rank {rank}:\n{text}"
                    report = pytest.CollectReport(nodeid, "failed", longrepr, [])
                    self.config.hook.pytest_collectreport(report=report)
        if len({remark["digest"] for remark in remarks}) > 1 and not self._errors:
            self._differ(ids)
        go_on = self.config.option.continue_on_collection_errors or not self._errors
        if self.ranks.journal is not None and go_on:
            self.ranks.journal.collected(ids)
        return result

    def _differ(self, ids: list[str]) -> NoReturn:
        first, *others = [remark["ids"] for remark in self.exchange("collection", {"ids": ids})]
        for rank, other in enumerate(others, 1):
            if other != first:
                only = [f"rank 0 alone has {i}" for i in first if i not in set(other)]
                only += [f"rank {rank} alone has {i}" for i in other if i not in set(first)]
                why = only[0] if only else "in another order"
                raise pytest.UsageError(f"the ranks collected different tests: {why}")
        raise AssertionError("digests differ, tests do not")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Agree whether the budget is spent: each rank has a clock of its own."""
        self._running = nodeid
        self.ranks.watchdog.enter(f"{nodeid} (start)", None, "the start of the test")
        if END in self.config.stash:
            spent: dict[str, Any] | None = {} if remaining(self.config) <= 0 else None
            if self.exchange("start", spent) is not None:
                self.config.stash[END] = 0.0
            else:  # and none of them finds it spent a moment later
                self.config.stash[END] = max(self.config.stash[END], time.time() + 1)

    pytest_runtest_setup = _within_deadline("setup")
    pytest_runtest_call = _within_deadline("call")
    pytest_runtest_teardown = _within_deadline("teardown")

    @contextmanager
    def within(self, item: pytest.Item, phase: str) -> Iterator[None]:
        """Within: the timer runs, and the watchdog knows what this rank does."""
        limit = self._deadline(item)
        path, line, _ = item.location
        at = f"{path}:{(line or 0) + 1}, the start of the {phase}"
        longest = None if limit is None else limit + GRACE
        mark = item.get_closest_marker("idle")
        idle = None if mark is None else float(mark.args[0])
        doing = f"{item.nodeid} ({phase})"
        self._limit, self._idle, self._inside = limit or 0.0, idle or 0.0, True
        self.ranks.watchdog.enter(doing, longest, at, str(item.path), idle=idle)
        signal.setitimer(signal.ITIMER_REAL, self._limit)
        try:
            yield
        finally:
            self._inside = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _deadline(self, item: pytest.Item) -> float | None:
        """Seconds that a phase may take. Tests of single operators do not wait for each other."""
        mark = item.get_closest_marker("deadline")
        if mark is not None:
            return None if mark.args[0] is None else float(mark.args[0])
        alone = item.get_closest_marker("check") is not None
        return self.config.getoption("--deadline") or (None if alone else DEADLINE)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Agree on the outcome of a phase."""
        report: Any = yield
        freed = call.excinfo is not None and _freed(call.excinfo.value)
        skipped = report.skipped and not hasattr(report, "wasxfail")
        left = call.excinfo is not None and not freed and not skipped  # others may do without it
        if left:
            self.ranks.notices.send()
        mine = Remark.of(report, call, freed=freed, left=left)
        limit = self._deadline(item)
        wait = None if limit is None else limit + 2 * GRACE
        answers = self.exchange(
            call.when, None if mine.plain else mine.message_to_others(), wait, mine.where
        )
        remarks = [Remark.read(remark) for remark in answers or ()]
        self.ranks.notices.clear([r for r, remark in enumerate(remarks) if remark.left])
        spoilt = any(remark.left or remark.kind == "freed" for remark in remarks)
        if spoilt or (call.when == "teardown" and self.ranks.used):
            self.ranks.renew(spoilt=spoilt)
        if remarks:
            apply(remarks, report, self.ranks.rank)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """Between two tests a rank may do nothing, but not be stopped."""
        done, self._running = self._running, ""
        self.ranks.watchdog.enter(f"after {done}", None, "between tests")

    def exchange(
        self, stage: str, remark: Any, limit: float | None = COLLECTING, where: str = ""
    ) -> Any:
        """Tell the others at the end of a stage, for which they have `limit` seconds."""
        doing = f"{self._running} ({stage})" if self._running else stage
        at = f"the end of the {stage}, waiting for the others{where and f'; it failed at {where}'}"
        self.ranks.watchdog.enter(doing, limit, at, waiting=True)
        return self.tell(stage, remark)

    def tell(self, stage: str, remark: Any) -> Any:
        """Tell the others. A rank that has left the run ends it for all."""
        try:
            return self.ranks.exchange(stage, remark)
        except Apart as apart:
            gone = [r for r, other in enumerate(apart.stages) if other == "end"]
            pytest.exit(f"rank {', '.join(map(str, gone))} has left the run: {apart}", 1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Agree on the exit status."""
        session.exitstatus = self._end(int(exitstatus))

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self) -> None:
        """The same where there was no session: an error while plugins were configured."""
        self._end(int(pytest.ExitCode.USAGE_ERROR) if sys.exc_info()[1] is not None else 0)

    def _end(self, status: int) -> int:
        error = sys.exc_info()[1]
        if self._running:  # an interrupt: others may wait in the test
            self.ranks.notices.send()
        why = str(error) if isinstance(error, pytest.UsageError) else ""
        agreed, first = self.ranks.end(status, why)
        if isinstance(error, pytest.UsageError) and self.ranks.rank and why == first:
            error.args = ()  # rank 0 prints the same
        return agreed

    def _overdue(self, number: int, frame: FrameType | None) -> None:
        """The timer is over, or the sentry sends the same signal while it runs."""
        __tracebackhide__ = True
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        if not self._inside:  # it came too late
            return
        if left or not self._limit:
            raise Overdue(f"nothing was done for {self._idle:g} s")
        raise Overdue(f"not done after {self._limit:g} s")


def _freed(error: BaseException) -> bool:
    """Whether it only waited for a rank that left; perhaps in one finalizer after another."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_freed, error.exceptions))
    return isinstance(error, Left)
