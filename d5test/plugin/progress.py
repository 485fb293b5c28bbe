"""Progress of a run: each fault as it is found, and a status line on a terminal.

    fault 1: Gelu(): the result is wrong on tensorflow 2.21.0 ...: .d5test/reproducers/Gelu-...py
    gradient Softmax-float32-torch    412 of 3,980 tests    1 fault    about 11 min left

Requirements: computed from reports, so that it is the same under xdist; a fault is a line wherever
the output goes. The status line stands where pytest's dots would, only on a terminal, and never
where somebody else may write: not with -s, -v, -q or a debugger, not on ranks. What is captured
never has it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from d5test.distributed.provider import launched
from d5test.plugin.budget import END, remaining
from d5test.plugin.outcomes import tallies_of

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

TRUSTED = 10
"""Tests after which the time that is left is guessed from the time that they took."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register what tells, in the process that has the terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not config.option.collectonly:
        config.pluginmanager.register(Progress(config, reporter), "d5test-progress")


class Progress:
    """What is known of a run that goes on."""

    def __init__(self, config: pytest.Config, reporter: Any) -> None:
        self.config, self.reporter = config, reporter
        self.faults: list[str] = []
        self.first: dict[tuple[str, str], int] = {}
        """For each backend and line of its own that raised: the number of the first fault."""
        self.running, self.folder = "", ""
        self.total, self.done, self.began = 0, 0, time.monotonic()
        self._live: Live | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The tests are known."""
        self.total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """xdist: likewise, in the process that distributes them."""
        self.total = len(ids)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """The status line stands while tests run."""
        self.began = time.monotonic()
        self._live = live(self) if on_terminal(self.config, self.reporter) else None
        if self._live is not None:
            self.reporter.showfspath = False
            self._live.start()
        try:
            return (yield)
        finally:
            if self._live is not None:
                self._live.stop()
                self._live.console.file.close()
                self._live = None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say what is under test."""
        _, _, test = nodeid.rpartition("::")
        self.running = test.removeprefix("test_").replace("[", " ").removesuffix("]")

    def pytest_runtest_logfinish(self) -> None:
        """One test more."""
        self.done += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """No letter where the status line stands."""
        status = yield
        return status if self._live is None or not status else (status[0], "", "")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say what was found."""
        lines = list(self._news(report))
        if lines:
            if self._live is not None:
                self._live.stop()
            self.reporter.ensure_newline()
            if self.reporter._tw.width_of_current_line:  # noqa: SLF001 - letters without a path
                self.reporter.line("")
            for line in lines:
                self.reporter.write_line(line, red=True)
            if self._live is not None:
                self._live.start()

    def _news(self, report: pytest.TestReport) -> Iterator[str]:
        before = len(self.faults)
        for tally in tallies_of([report]):
            for fault in tally.faults:
                self.faults.append(fault["text"])
                path = fault["reproducer"] and os.path.relpath(fault["reproducer"])
                self.folder = os.path.dirname(path) or self.folder
                words = f"{tally.check}, {tally.dtype}" if tally.dtype else tally.check
                where = f": {path}" if path else ""
                number = len(self.faults)
                line = tally.backend, fault["at"] or str(number)
                first = self.first.setdefault(line, number)
                text = fault["text"] if first == number else f"as fault {first}"
                yield f"fault {number}: {text} ({words}){where}"
        if report.failed and self._live is not None and len(self.faults) == before:
            first_line = report.longreprtext.strip().partition("\n")[0]
            yield f"{report.nodeid.rpartition('::')[2]} failed: {first_line}"

    def __rich__(self) -> Text:
        """The status line."""
        from rich.text import Text

        count = len(self.faults)
        words = [
            self.running,
            f"{self.done:,} of {self.total:,} tests",
            f"{count} fault{'s' * (count != 1)}" + (f" in {self.folder}" if self.folder else ""),
            self.left(),
        ]
        line = Text("    ".join(filter(None, words)), no_wrap=True, overflow="ellipsis")
        line.stylize("red" if count else "green")
        return line

    def left(self) -> str:
        """The time that is left: of the budget, or by the time that tests took so far."""
        if END in self.config.stash:
            return f"{in_words(max(remaining(self.config), 0))} of the budget left"
        if self.done < TRUSTED:
            return ""
        spent = time.monotonic() - self.began
        return f"about {in_words(spent / self.done * max(self.total - self.done, 0))} left"


def in_words(seconds: float) -> str:
    """A time for a person.

    >>> in_words(100)
    '2 min'
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def on_terminal(config: pytest.Config, reporter: Any) -> bool:
    """Whether a status line can stand under what pytest prints."""
    option = config.option
    return (
        bool(reporter.isatty)
        and reporter.verbosity == 0
        and option.capture != "no"
        and not (option.usepdb or option.trace or option.setupshow)
        and launched() is None
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def live(progress: Progress) -> Live:
    """Rich's, on a file of its own: what is captured while a test runs is another one."""
    from rich.console import Console
    from rich.live import Live

    terminal = os.fdopen(os.dup(progress.reporter._tw._file.fileno()), "w")  # noqa: SLF001
    return Live(
        progress,
        console=Console(file=terminal, force_terminal=True),
        refresh_per_second=2,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
