"""What rank 0 writes down for the supervisor as it happens, and what pytest hears of it there.

Requirements: a line is written before what it speaks of begins, or once it is over, so that after
any death the last line names the test that was under way; a line holds what another process needs
to report it. What pytest and its plugins hear is what they would hear if the tests ran where it is
replayed, every round of pytest-benchmark too; a test that was under way when the journal ends is
reported as failed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from d5test.plugin.elsewhere import plain, rebuilt
from d5test.plugin.shards import WHOLE

JOURNAL, PLAN = "journal.jsonl", "plan.json"
FIELDS = ("name", "fullname", "group", "param", "params", "extra_info", "iterations", "options")
"""Of what pytest-benchmark measured."""
Phase = Literal["setup", "call", "teardown"]
Location = tuple[str, int | None, str]


class Part:
    """The plugin of each rank under a supervisor: only what is left to do."""

    def __init__(self, folder: Path) -> None:
        plan = folder / PLAN
        self.ids: list[str] | None = json.loads(plan.read_text()) if plan.exists() else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the tests out that were run before a crash."""
        if self.ids is not None:
            collected = {item.nodeid: item for item in items}
            items[:] = [collected[name] for name in self.ids if name in collected]


class Journal:
    """The plugin of rank 0 under a supervisor."""

    def __init__(self, config: pytest.Config, folder: Path, facts: dict[str, Any]) -> None:
        self.config = config
        self._file = (folder / JOURNAL).open("a")
        self._timed = 0
        self._write("world", facts=facts)

    def collected(self, ids: list[str]) -> None:
        """What there is to do, once the ranks agree on it."""
        self._write("collected", ids=ids, whole=self.config.stash.get(WHOLE, None))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What cannot be collected."""
        if not report.passed:
            self._write("uncollected", report=plain(self.config, report))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """A test that begins."""
        self._write("start", nodeid=nodeid, location=location)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase that is over, and what the ranks agreed on."""
        self._write("report", report=plain(self.config, report))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """A test that is over, with what it timed."""
        session = getattr(self.config, "_benchmarksession", None)
        timed = session.benchmarks[self._timed :] if session is not None else []
        self._timed += len(timed)
        self._write("finish", timed=[_plain(measured) for measured in timed])

    def end(self, status: int) -> None:
        """The run is over."""
        self._write("end", status=status)
        self._file.close()

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


@dataclass
class Replay:
    """How far a launch has come.

    ids       what it has to do; `None` until its ranks have agreed on that
    broken    how many things cannot be collected
    finished  what is done
    running   the test under way, with its location; `called`: whether its call is over
    status    that the ranks agreed on at the end; `None` until then
    facts     what runs them
    again     whether another launch came before, which has said what cannot be collected
    """

    session: pytest.Session
    again: bool = False
    ids: list[str] | None = None
    broken: int = 0
    finished: set[str] = field(default_factory=set)
    running: tuple[str, Location] | None = None
    called: bool = False
    status: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> list[str]:
        """What is still to be done."""
        return [name for name in self.ids or () if name not in self.finished]

    def hear(self, entry: Mapping[str, Any]) -> None:
        """Replay a line of the journal."""
        what = {name: value for name, value in entry.items() if name != "event"}
        getattr(self, f"_hear_{entry['event']}")(**what)

    def _hear_world(self, facts: Mapping[str, Any]) -> None:
        self.facts = facts

    def _hear_collected(self, ids: list[str], whole: list[Any] | None) -> None:
        self.ids = ids
        config = self.session.config
        outcomes = config.pluginmanager.get_plugin("d5test-outcomes")
        if outcomes is not None and not self.again:
            outcomes.heard(ids)
        if whole is not None:
            tests, sha256 = whole
            config.stash[WHOLE] = tests, sha256
        self.session.testscollected = max(self.session.testscollected, len(ids))

    def _hear_uncollected(self, report: dict[str, Any]) -> None:
        heard = rebuilt(self.session.config, report)
        self.broken += heard.failed
        if not self.again:
            self._hook.pytest_collectreport(report=heard)

    def _hear_start(self, nodeid: str, location: list[Any]) -> None:
        path, line, name = location
        self.running, self.called = (nodeid, (path, line, name)), False
        self._hook.pytest_runtest_logstart(nodeid=nodeid, location=(path, line, name))

    def _hear_report(self, report: dict[str, Any]) -> None:
        heard = rebuilt(self.session.config, report)
        self.called |= heard.when == "call"
        self._hook.pytest_runtest_logreport(report=heard)

    def _hear_finish(self, timed: list[Any]) -> None:
        _put(self.session.config, timed)
        self._finish()

    def _hear_end(self, status: int) -> None:
        self.status = status

    def blame(self, story: str, printed: str) -> None:
        """Report the test that was under way as failed, with what mpirun printed."""
        assert self.running is not None
        nodeid, location = self.running
        phases: list[Phase] = ["teardown"] if self.called else ["call", "teardown"]
        for phase in phases:
            failed = phase == phases[0]
            report = pytest.TestReport(
                nodeid,
                location,
                {},
                outcome="failed" if failed else "passed",
                longrepr=story if failed else None,
                when=phase,
                sections=[("mpirun", printed)] if failed and printed else (),
            )
            self._hook.pytest_runtest_logreport(report=report)
        self._finish()

    def _finish(self) -> None:
        assert self.running is not None
        (nodeid, location), self.running = self.running, None
        self.finished.add(nodeid)
        self._hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)

    @property
    def _hook(self) -> Any:
        return self.session.config.hook


def _put(config: pytest.Config, timed: Iterable[Mapping[str, Any]]) -> None:
    """Report what another process has measured with pytest-benchmark."""
    from pytest_benchmark.stats import Metadata

    session: Any = getattr(config, "_benchmarksession", None)
    for entry in timed:
        fixture = SimpleNamespace(**entry, cprofile_stats=None)
        metadata = Metadata(fixture, iterations=entry["iterations"], options=entry["options"])
        for seconds in entry["data"]:
            metadata.stats.update(seconds)
        session.benchmarks.append(metadata)


def _plain(timed: Any) -> dict[str, Any]:
    plain = {name: getattr(timed, name) for name in FIELDS}
    named = {n: getattr(v, "__name__", v) for n, v in timed.options.items()}
    return {**plain, "options": named, "has_error": timed.has_error, "data": timed.stats.data}
