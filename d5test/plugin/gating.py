"""`d5test gate`: both versions are measured before the first test, and each test is a verdict.

Requirements: what stands on the command line is resolved before anything is collected; the tests
are those that would be timed, and those of the corpus, with the same names; a verdict is a test's
outcome, in JUnit too.
"""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from d5test.files import replace
from d5test.outcome.assessment import Conclusion
from d5test.plugin.benchmarks import cases, subjects
from d5test.plugin.outcomes import end
from d5test.plugin.workers import GATING, WORKERS, opened

VERDICT = "d5test-gate"
"""The name of the entries in a report's `user_properties`."""
FEW = 3
"""How many reasons are printed why cases were not compared."""


class Gating:
    """The gate of a run. Raises UsageError, in one line, for what it cannot use."""

    def __init__(self, config: pytest.Config) -> None:
        from d5test.client.messages import UnknownBackend
        from d5test.gate import Versions
        from d5test.gate.accepted import Unacceptable, read
        from d5test.gate.decider import Decider

        option = config.getoption
        self.config = config
        self.corpus: Any = None
        self.outcome: Any = None
        self.unwritten = ""
        try:
            self.versions = Versions(option("--gate-old"), option("--gate-new"))
            self.accepted = [row for file in option("--gate-accept") for row in read(Path(file))]
        except UnknownBackend as error:
            raise pytest.UsageError(str(error).partition("\n")[0]) from None
        except Unacceptable as error:
            raise pytest.UsageError(str(error)) from None
        if option("--gate-report") and not find_spec("jinja2"):
            raise pytest.UsageError("a report needs Jinja2: pip install 'd5test[report]'")
        self.decider = Decider(option("--gate-effect"))
        self.budget = option("--gate-budget") or float("inf")

    def measure(self, items: list[pytest.Item]) -> None:
        """Judge the cases of the corpus, and measure all tests that are timed.

        Raises UsageError where what was measured cannot be kept or compared.
        """
        from d5test.compare import Unreadable
        from d5test.gate.outcome import outcome

        option, here = self.config.getoption, self.config.invocation_params.dir
        end, report, rounds = time.monotonic() + self.budget, option("--gate-report"), 0
        if report:
            from d5test.report.content import ROUNDS

            rounds = ROUNDS
        try:
            self.corpus = self._examined(items)
            gate = self._gate(option("--seed"), end - time.monotonic())
            findings, folder = gate.measure(subjects(items)), here / option("--gate-results")
            self.outcome = outcome(
                findings, self.decider.effect, folder, self.accepted, rounds, self.corpus
            )
        except (OSError, Unreadable) as error:
            raise pytest.UsageError(f"the gate: {error}") from None
        if report and self.outcome is not None:
            self._write_page(here / report)

    def _write_page(self, path: Path) -> None:
        """Without it, the verdicts stand."""
        from d5test.report import Report, page

        outcome, effect = self.outcome, self.decider.effect
        try:
            report = Report(outcome.old, outcome.new, effect, outcome.paired, outcome.rule)
            replace(path, page(report))
        except (OSError, ValueError) as error:
            self.unwritten = f"the report was not written: {error}"

    def test(self, items: list[pytest.Item]) -> None:
        """Measure the gate itself, and say what was seen."""
        from d5test.gate.trial import trial

        seed, end = self.config.getoption("--seed"), time.monotonic() + self.budget
        rates = trial(lambda k: self._gate(seed + k, float("inf")), subjects(items), end)
        for line in rates.lines():
            self._tell(line)

    def _examined(self, items: list[pytest.Item]) -> Any:
        """The corpus on both versions: the old one is judged in the worker that the run has."""
        from d5test.gate.corpus import examine

        def opens(arm: str, backend: str) -> Any:
            if arm == "old":
                return nullcontext(self.config.stash[WORKERS].client(backend))
            return opened(self.config, self.versions.name(arm, backend))

        begun, seed = time.monotonic(), self.config.getoption("--seed")
        examination = examine(cases(items), opens, seed, self.budget)
        for note in examination.notes:
            self._tell(note)
        if examination.cases:
            took = f"{time.monotonic() - begun:.0f} s"
            self._tell(f"corpus: {examination.compared} cases judged in both versions, in {took}")
        return examination

    def _gate(self, seed: int, budget: float) -> Any:
        from d5test.gate import Gate

        def opens(arm: str, backend: str) -> Any:
            return opened(self.config, self.versions.name(arm, backend), fork=False)

        return Gate(opens, self.decider, seed=seed, budget=budget, tell=self._tell)

    def judge(self, item: pytest.Item, more: Callable[[], str] = str) -> None:
        """End a test with the verdict on its benchmark; `more`: what to say of a failure."""
        end(self._conclusion(item, more))

    def _conclusion(self, item: pytest.Item, more: Callable[[], str]) -> Conclusion:
        outcome, name = self.outcome, item.nodeid
        if outcome and (gone := outcome.vanished(name)):
            return Conclusion("failed", f"the new version: {gone}\n{more()}".rstrip())
        decisions = outcome.of(name) if outcome else []
        if outcome and not decisions and (broken := outcome.broken(name)):
            return Conclusion("skipped", f"not compared: the old version: {broken}")
        lines = defaultdict(list)
        for decision in decisions:
            line = _line(decision)
            item.user_properties.append((VERDICT, f"{decision.verdict}: {line}"))
            lines[decision.verdict].append(line)
        if lines["worse"]:
            return Conclusion("failed", "\n".join([*lines["worse"], more()]).rstrip())
        unsure = lines["unsure"] if decisions else ["not measured: the budget was spent"]
        if unsure and self.config.getoption("--gate-unsure") == "fail":
            return Conclusion("failed", "\n".join(f"unsure: {line}" for line in unsure))
        return Conclusion("passed")

    def _tell(self, line: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"gate: {line}")


def _line(decision: Any) -> str:
    from statistics import median

    from d5test.compare.output import change, quantity, what

    values = decision.values
    sides = [values.before, values.after]
    medians = [quantity(median(side), values.metric) if side else "-" for side in sides]
    words = f"{what(decision)}:", change(decision), f"({' -> '.join(medians)}), {decision.reason}"
    return " ".join(filter(None, words))


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
    elif gating.unwritten:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of the comparison, and what it cost."""
    config, tell = terminalreporter.config, terminalreporter.write_line
    gating, option = config.stash.get(GATING, None), config.option
    if gating is None:
        return
    if gating.outcome is None:
        if not option.gate_self_test and not option.collectonly:
            tell("d5test gate: nothing was compared")
        return
    from d5test.compare.output import text
    from d5test.gate.accepted import unused

    terminalreporter.section("d5test gate", sep="=")
    terminalreporter.flush()
    text(dataclasses.replace(gating.outcome.comparison, strict=option.gate_unsure == "fail"))
    findings = gating.outcome.findings
    for name in unused(gating.accepted, findings.evidence):
        tell(f"accepted, and not measured: {name}")
    for line in _left(gating.corpus, findings):
        tell(line)
    if option.gate_report:
        tell(gating.unwritten or f"the report is {option.gate_report}")
    if findings.measurements:
        spent = "; the budget was spent" if findings.spent else ""
        tell(f"measured in {findings.sessions:.1f} times the first session{spent}")
    tell(f"the runs are in {option.gate_results}")


def _left(corpus: Any, findings: Any) -> Iterator[str]:
    """What was not compared, and why."""
    from d5test.compare.output import plain

    reasons = corpus.reasons
    if reasons:
        most = [f"{plain(why)} ({count})" for why, count in reasons.most_common(FEW)]
        more = len(reasons) - len(most)
        words = "; ".join([*most, *([f"and {more} reasons more"] if more else [])])
        yield f"corpus: {reasons.total()} cases were not judged in both versions: {words}"
    for left, what in ((corpus.left, "cases of the corpus"), (findings.left, "benchmarks")):
        if left:
            yield f"UNSURE: {len(left)} {what} were not measured: the budget was spent"
