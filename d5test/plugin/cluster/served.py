"""A pytest that runs a test when it is asked, and sends the reports.

Requirements: nothing is written but what the suites write (reproducers); when the other end of the
pipe is gone this process ends at once, in the middle of a test, too.
"""

import json
import os
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from d5test.plugin.budget import END
from d5test.plugin.elsewhere import plain
from d5test.plugin.ranks.quiet import hush, write_nothing


class Nothing(pytest.Item):
    """The test that comes next as far as pytest knows: what belongs to the session is kept."""

    def runtest(self) -> None:
        """Never called."""


class Served:
    """The plugin of such a pytest; `pipes` are the numbers of the two it reads and writes."""

    def __init__(self, config: pytest.Config, pipes: str) -> None:
        self.config = config
        read, write = map(int, pipes.split(","))
        self._asked: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._answers = os.fdopen(write, "w", encoding="utf-8")
        self._reports: list[dict[str, Any]] = []
        config.option.on = config.option.workers = None
        write_nothing(config.option)
        threading.Thread(target=self._listen, args=(read,), daemon=True).start()

    def _listen(self, read: int) -> None:
        with os.fdopen(read, encoding="utf-8") as lines:
            for line in lines:
                self._asked.put(json.loads(line))
        os._exit(1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Take the terminal and the cache away."""
        hush(session.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run what is asked for, until nothing more is."""
        items = {item.nodeid: item for item in session.items}
        nothing = Nothing.from_parent(session, name="nothing")
        self._answer(ready=len(items))
        while (asked := self._asked.get()) is not None:
            if asked["end"] is not None:
                self.config.stash[END] = asked["end"]
            item = items.get(asked["test"])
            if item is None:
                self._answer(unknown=asked["test"])
                continue
            self._reports = []
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=nothing)
            session.shouldfail = False  # -x is for the controller, which hears of all tests
            self._answer(reports=self._reports)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase that is over."""
        self._reports.append(plain(self.config, report))

    def _answer(self, **what: Any) -> None:
        self._answers.write(json.dumps(what, default=str) + "\n")
        self._answers.flush()
