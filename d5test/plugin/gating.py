"""`d5test gate`: both versions are measured before the first test, and each test is a verdict.

Requirements: what stands on the command line is resolved before anything is collected; the tests
are those that would be timed, with the same names; a verdict is a test's outcome, in JUnit too.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

GATING = pytest.StashKey["Gating"]()
VERDICT = "d5test-gate"
"""The name of the entries in a report's `user_properties`."""


class Gating:
    """The gate of a run. Raises UsageError, in one line, for what it cannot use."""

    def __init__(self, config: pytest.Config) -> None:
        from d5test.backends.exchange import UnknownBackend
        from d5test.gate import Versions
        from d5test.gate.accepted import Accepted, Unacceptable, read
        from d5test.gate.decider import Decider

        option = config.getoption
        self.config = config
        self.outcome: Any = None
        try:
            self.versions = Versions(option("--gate-old"), option("--gate-new"))
        except UnknownBackend as error:
            raise pytest.UsageError(str(error).partition("\n")[0]) from None
        try:
            files = option("--gate-accept")
            self.accepted: list[Accepted] = [row for f in files for row in read(Path(f))]
        except Unacceptable as error:
            raise pytest.UsageError(str(error)) from None
        if option("--gate-report") and not find_spec("jinja2"):
            raise pytest.UsageError("a report needs Jinja2: pip install 'd5test[report]'")
        self.decider = Decider(option("--gate-effect"))
        self.budget = option("--gate-budget") or float("inf")

    def measure(self, items: list[pytest.Item]) -> None:
        """Measure all tests that are timed."""
        from d5test.gate.outcome import outcome
        from d5test.plugin.timing import subjects

        option, here = self.config.getoption, self.config.invocation_params.dir
        found = self._gate(option("--seed"), self.budget).measure(subjects(items))
        given = found, self.decider.effect, here / option("--gate-results"), self.accepted
        if not option("--gate-report"):
            self.outcome = outcome(*given)
            return
        from d5test.report import Report, page
        from d5test.report.content import ROUNDS

        self.outcome = made = outcome(*given, rounds=ROUNDS)
        if made is not None:
            report = Report(made.old, made.new, self.decider.effect, made.paired, made.rule)
            (here / option("--gate-report")).write_text(page(report), encoding="utf-8")

    def test(self, items: list[pytest.Item]) -> None:
        """Measure the gate itself, and say what was seen."""
        from d5test.gate.trial import trial
        from d5test.plugin.timing import subjects

        seed, end = self.config.getoption("--seed"), time.monotonic() + self.budget
        found = trial(lambda k: self._gate(seed + k, float("inf")), subjects(items), end)
        for line in found.lines():
            self._tell(line)

    def _gate(self, seed: int, budget: float) -> Any:
        from d5test.gate import Gate
        from d5test.plugin.workers import opened

        def opens(arm: str, backend: str) -> Any:
            return opened(self.config, self.versions.name(arm, backend), fork=False)

        return Gate(opens, self.decider, seed=seed, budget=budget, tell=self._tell)

    def judge(self, item: pytest.Item) -> None:
        """The verdict on a test's benchmark, as its outcome."""
        gone = self.outcome.vanished(item.nodeid) if self.outcome else ""
        if gone:
            pytest.fail(f"the new version: {gone}", pytrace=False)
        decisions = self.outcome.of(item.nodeid) if self.outcome else []
        if not decisions:
            broken = self.outcome.broken(item.nodeid) if self.outcome else ""
            if broken:
                pytest.skip(f"not compared: the old version: {broken}")
            self._unsure(["not measured: the budget was spent"])
            return
        lines: dict[str, list[str]] = {"worse": [], "unsure": []}
        for decision in decisions:
            line = _line(decision)
            item.user_properties.append((VERDICT, f"{decision.verdict}: {line}"))
            lines.setdefault(decision.verdict, []).append(line)
        if lines["worse"]:
            pytest.fail("\n".join(lines["worse"]), pytrace=False)
        if lines["unsure"]:
            self._unsure(lines["unsure"])

    def _unsure(self, lines: list[str]) -> None:
        if self.config.getoption("--gate-unsure") == "fail":
            pytest.fail("\n".join(f"unsure: {line}" for line in lines), pytrace=False)

    def _tell(self, line: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"gate: {line}")


def _line(decision: Any) -> str:
    from statistics import median

    from d5test.compare.words import change, quantity, what

    values = decision.values
    sides = [values.before, values.after]
    told = [quantity(median(side), values.metric) if side else "-" for side in sides]
    return f"{what(decision)}: {change(decision)} ({' -> '.join(told)}), {decision.reason}"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read what the gate is given, before any worker is started."""
    old, new = config.getoption("--gate-old"), config.getoption("--gate-new")
    if not old and not new:
        return
    if not (old and new):
        raise pytest.UsageError("the gate compares two versions: --gate-old and --gate-new")
    if getattr(config.option, "dist", "no") != "no":
        raise pytest.UsageError("the gate measures times, one after the other: leave out -n")
    if config.getoption("--in-process"):
        raise pytest.UsageError("the gate measures fresh processes: leave out --in-process")
    config.stash[GATING] = Gating(config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Measure before the first verdict; a gate that tests itself gives none."""
    gating = session.config.stash.get(GATING, None)
    if gating is None or session.config.option.collectonly or session.testsfailed:
        return None
    if session.config.getoption("--gate-self-test"):
        gating.test(session.items)
        return True
    gating.measure(session.items)
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A gate that compared nothing has not passed."""
    gating = session.config.stash.get(GATING, None)
    option = session.config.option
    if gating is None or option.collectonly or option.gate_self_test or session.exitstatus:
        return
    if gating.outcome is None or not gating.outcome.comparison.decisions:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of the comparison, and what it cost."""
    gating = terminalreporter.config.stash.get(GATING, None)
    if gating is None:
        return
    if gating.outcome is None:
        option = terminalreporter.config.option
        if not option.gate_self_test and not option.collectonly:
            terminalreporter.write_line("d5test gate: nothing was compared")
        return
    from d5test.compare.output import text
    from d5test.gate.accepted import unused

    terminalreporter.section("d5test gate", sep="=")
    terminalreporter.flush()
    text(gating.outcome.comparison)
    findings = gating.outcome.findings
    for name in unused(gating.accepted, findings.evidence):
        terminalreporter.write_line(f"accepted, and not measured: {name}")
    if findings.left:
        terminalreporter.write_line(
            f"UNSURE: {len(findings.left)} benchmarks were not measured: the budget was spent"
        )
    spent = "; the budget was spent" if findings.spent else ""
    report = terminalreporter.config.getoption("--gate-report")
    if report:
        terminalreporter.write_line(f"the report is {report}")
    terminalreporter.write_line(
        f"measured in {findings.sessions:.1f} times the first session{spent}; "
        f"the runs are in {terminalreporter.config.getoption('--gate-results')}"
    )
