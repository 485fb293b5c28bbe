"""pytest's own switches do what pytest says, or are refused in a line that says what to use.

Requirements: what pytest, pytest-benchmark and Hypothesis offer either works on the suites or is
one line and exit status 4, before anything is judged; a wrong option is one line. Tests of others
that run beside are left alone. `--collect-only` costs little more than importing the framework.
"""

from collections.abc import Generator
from typing import Any, NoReturn

import pytest

from d5test.names import hint
from d5test.plugin.benchmarks import asks

MEASURING = ("stopwatch", "network_stopwatch", "pace", "scale", "gauge", "benchmark")
"""The fixtures of tests of which pytest-benchmark has an entry."""
SAVING = ("benchmark_json", "benchmark_autosave", "benchmark_save")
MIN_ROUNDS = 5
"""pytest-benchmark's own default."""
ROUNDS = 20
"""The fewest rounds with which the median has a 95% confidence interval off the extremes: with 6
there is one at all, with 20 it lies between the 6th and the 15th."""
REFUSED = {
    "hypothesis_seed": "each cell has a seed of its own: say --seed=N",
    "hypothesis_show_statistics": "cases are counted at the end of the run, with -v by operator",
}
"""Options of Hypothesis that mean nothing where d5test draws, and what to do."""
XDIST = ("-n", "--numprocesses", "--dist")
"""Options of pytest-xdist, which is not always installed."""
UNTIMED = (
    "nothing was timed, so no benchmark file is written: name test_time.py (times) or, on "
    "operators, test_corpus.py (accuracy)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a wrong option be one line: without pytest's usage, its inifile and its rootdir."""
    options = getattr(parser, "optparser", None)  # before pytest 9 there is none yet
    if options is not None:

        def error(message: str) -> NoReturn:
            unknown = message.removeprefix("unrecognized arguments: ")
            if unknown != message:
                first, *_ = unknown.split(maxsplit=1)
                name, _, _ = first.partition("=")
                known = [o for action in options._actions for o in action.option_strings]  # noqa: SLF001
                meant = hint(name, [o for o in known if o.startswith("--")])
                more = meant if meant.startswith("did") else "--help lists all"
                more = "pip install pytest-xdist" if name in XDIST else more
                message = f"unknown option {first!r}: {more}"
            raise pytest.UsageError(message)

        options.error = error


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what does not go together, and leave out what a list of tests does not need.

    Hypothesis' plugin imports Hypothesis at the end of every run, to look for statistics.
    """
    option = config.option
    if option.control and getattr(option, "benchmark_min_rounds", MIN_ROUNDS) != MIN_ROUNDS:
        raise pytest.UsageError("--control times rounds of its own: no --benchmark-min-rounds")
    if option.collectonly and not getattr(option, "hypothesis_profile", None):
        config.pluginmanager.unregister(name="hypothesispytest")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, Any, Any]:
    """`--benchmark-only` and `--benchmark-skip`: with and without the tests that measure.

    pytest-benchmark knows tests by their fixture, which ours ask for while they run.
    """
    option = config.option
    only = getattr(option, "benchmark_only", False)
    if only or getattr(option, "benchmark_skip", False):
        left_out = [
            item for item in items if asks(item, *MEASURING) != only and (only or is_ours(item))
        ]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in set(left_out)]
        config._benchmarksession.only = False  # type: ignore[attr-defined]  # noqa: SLF001
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """After collection: what means nothing for the suites is a usage error."""
    result = yield
    option = session.config.option
    if any(is_ours(item) for item in session.items):
        for name, instead in REFUSED.items():
            if getattr(option, name, None):
                switch = f"--{name.replace('_', '-')}"
                raise pytest.UsageError(f"{switch} has no effect on the suites: {instead}")
    return result


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Say before a long run that no file will come of it."""
    nothing = saves(config) and not any(asks(item, *MEASURING) for item in items)
    return [UNTIMED] if nothing and any(map(is_ours, items)) else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it at the end, too."""
    session = getattr(terminalreporter.config, "_benchmarksession", None)
    if saves(terminalreporter.config) and session is not None and not session.benchmarks:
        terminalreporter.write_line(UNTIMED)


def saves(config: pytest.Config) -> bool:
    """Whether a file of benchmarks is asked for."""
    return any(getattr(config.option, name, None) for name in SAVING)


def is_ours(item: pytest.Item) -> bool:
    """Whether a test asks for a fixture of d5test."""
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.values() if info is not None else ()
    return any(
        getattr(known[-1].func, "__module__", "").startswith("d5test.fixtures.")
        for known in definitions
        if known
    )


def rounds(config: pytest.Config) -> int:
    """How many rounds are timed: as many as an interval of the median needs, or as asked for."""
    return max(ROUNDS, int(config.getoption("benchmark_min_rounds", ROUNDS)))
