"""`--replay=FILE`: pytest reports a run again that --outcomes wrote, and runs nothing.

Requirements: the summary, JUnit and the exit status are those of that run; one that did not come
to its end is interrupted, and says what it left.
"""

from itertools import groupby
from typing import Any

import pytest

from d5test.arguments import Mistake
from d5test.plugin.elsewhere import hear, rebuilt
from d5test.shards import Run, read


def pytest_configure(config: pytest.Config) -> None:
    """Read the file."""
    path = config.getoption("--replay")
    if not path:
        return
    for other in ("--backend", "--np", "--shard", "--outcomes"):
        if config.getoption(other):
            raise pytest.UsageError(f"--replay runs nothing: leave out {other}")
    try:
        run = read(path)
    except Mistake as error:
        raise pytest.UsageError(str(error)) from None
    config.option.shard = run.shard
    config.pluginmanager.register(Replay(run), "d5test-replay")


class Replay:
    """The plugin of a session that reports what another one ran."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def pytest_report_header(self) -> str:
        """What is reported."""
        parts = self.run.where.get("merged", ())
        return f"{len(parts)} files, merged" if parts else f"reported again: {self.run.path}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect what was collected."""
        session.items = []
        session.testscollected = len(self.run.ids)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Report."""
        config = session.config
        tests = [report for report in self.run.reports if "when" in report]
        for report in self.run.reports:
            if "when" not in report:
                config.hook.pytest_collectreport(report=rebuilt(config, report))
        for _, phases in groupby(by_test(tests), key=lambda report: report["nodeid"]):
            hear(config, phases)
        if self.run.gap:
            raise session.Interrupted(self.run.gap)
        return True


def by_test(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reports with those of a test together: xdist's processes report at the same time."""
    first: dict[str, int] = {}
    for report in reports:
        first.setdefault(report["nodeid"], len(first))
    return sorted(reports, key=lambda report: first[report["nodeid"]])
