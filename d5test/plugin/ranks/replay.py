"""The journal of one launch of mpirun, replayed to the pytest that supervises it.

Requirements: what pytest and its plugins hear is what they would hear if the tests ran here; a
test that was under way when the journal ends is reported as failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from d5test.plugin.ranks import times

Phase = Literal["setup", "call", "teardown"]
Location = tuple[str, int | None, str]


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
        getattr(self, f"on_{entry['event']}")(**what)

    def on_world(self, facts: Mapping[str, Any]) -> None:
        """MPI is started."""
        self.facts = facts

    def on_collected(self, ids: list[str]) -> None:
        """The ranks agree on what there is to do."""
        self.ids = ids
        self.session.testscollected = max(self.session.testscollected, len(ids))

    def on_uncollected(self, report: dict[str, Any]) -> None:
        """Something cannot be collected."""
        built = self._built(report)
        self.broken += built.failed
        if not self.again:
            self._hook.pytest_collectreport(report=built)

    def on_start(self, nodeid: str, location: list[Any]) -> None:
        """A test begins."""
        path, line, name = location
        self.running, self.called = (nodeid, (path, line, name)), False
        self._hook.pytest_runtest_logstart(nodeid=nodeid, location=(path, line, name))

    def on_report(self, report: dict[str, Any]) -> None:
        """A phase of it is over."""
        built = self._built(report)
        self.called |= built.when == "call"
        self._hook.pytest_runtest_logreport(report=built)

    def on_finish(self, timed: list[Any]) -> None:
        """It is over."""
        times.put(self.session.config, timed)
        self._finish()

    def on_end(self, status: int) -> None:
        """So is the run."""
        self.status = status

    def blame(self, story: str, said: str) -> None:
        """Report the test that was under way as failed, with what mpirun said of it."""
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
                sections=[("mpirun", said)] if failed and said else (),
            )
            self._hook.pytest_runtest_logreport(report=report)
        self._finish()

    def _finish(self) -> None:
        assert self.running is not None
        (nodeid, location), self.running = self.running, None
        self.finished.add(nodeid)
        self._hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)

    def _built(self, data: dict[str, Any]) -> Any:
        """The report that was written; JSON has no tuples, and pytest insists on them."""
        for name in ("location", "longrepr"):
            if isinstance(data.get(name), list):
                data[name] = tuple(data[name])
        for name in ("sections", "user_properties"):
            data[name] = [tuple(pair) for pair in data.get(name, ())]
        config = self.session.config
        return self._hook.pytest_report_from_serializable(config=config, data=data)

    @property
    def _hook(self) -> Any:
        return self.session.config.hook
