"""What rank 0 writes down for the supervisor, as it happens.

Requirements: a line is written before what it speaks of begins, or once it is over, so that after
any death the last line names the test that was under way; a line holds what another process needs
to report it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from d5test.plugin.ranks import times

SUPERVISED = "D5TEST_SUPERVISED"
"""The variable that holds the folder of the supervisor that started this mpirun."""
JOURNAL, PLAN = "journal.jsonl", "plan.json"


class Part:
    """The plugin of each rank under a supervisor: only what is left to do."""

    def __init__(self, folder: Path) -> None:
        plan = folder / PLAN
        self.ids: list[str] | None = json.loads(plan.read_text()) if plan.exists() else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the tests out that were run before a crash."""
        if self.ids is not None:
            found = {item.nodeid: item for item in items}
            items[:] = [found[name] for name in self.ids if name in found]


class Journal:
    """The plugin of rank 0 under a supervisor."""

    def __init__(self, config: pytest.Config, folder: Path, facts: dict[str, Any]) -> None:
        self.config = config
        self._file = (folder / JOURNAL).open("a")
        self._timed = 0
        self._write("world", facts=facts)

    def collected(self, ids: list[str]) -> None:
        """What there is to do, once the ranks agree on it."""
        self._write("collected", ids=ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What cannot be collected."""
        if not report.passed:
            self._write("uncollected", report=self._plain(report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """A test that begins."""
        self._write("start", nodeid=nodeid, location=location)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase that is over, and what the ranks agreed on."""
        self._write("report", report=self._plain(report))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """A test that is over, with what it timed."""
        timed = times.of(self.config)[self._timed :]
        self._timed += len(timed)
        self._write("finish", timed=timed)

    def end(self, status: int) -> None:
        """The run is over."""
        self._write("end", status=status)
        self._file.close()

    def _plain(self, report: Any) -> Any:
        return self.config.hook.pytest_report_to_serializable(config=self.config, report=report)

    def _write(self, event: str, **what: Any) -> None:
        self._file.write(json.dumps({"event": event, **what}, default=str) + "\n")
        self._file.flush()


class Reader:
    """The lines of a journal, each once, as they come."""

    def __init__(self, folder: Path) -> None:
        self._path, self._at = folder / JOURNAL, 0

    def new(self) -> Iterator[dict[str, Any]]:
        """The whole lines since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        yield from map(json.loads, whole.splitlines())
