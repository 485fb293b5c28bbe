"""Problems to be timed, a run of its own: parametrised, and kept out of runs that judge.

Requirements: `pytest suites/operators` judges and times nothing, since a busy machine spoils both;
`pytest suites/operators/test_time.py` times. A time whose test failed never enters the JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from d5test.metric import TIME, measured
from d5test.plugin import native
from d5test.plugin.selection import SELECTION
from d5test.plugin.workers import WORKERS

FILE = "test_time.py"
SUITES = frozenset({"operators", "networks"})
TIMED = "d5test-timed"
"""The name of the entry in a report's `user_properties`."""
VISITED = pytest.StashKey[dict[str, Any]]()
"""What --control measured, by the name of the test; see `d5test.visits.Visited`."""
DIRECTIONS = ("forward", "backward")
EXPECTATIONS = pytest.StashKey[dict[Any, Any]]()
"""What the references expect of the networks that are timed."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Times are measured only where their file is named."""
    if collection_path.name != FILE or not SUITES.intersection(collection_path.parts):
        return None
    named = any(Path(str(argument).partition("::")[0]).name == FILE for argument in config.args)
    return None if named else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `problem` by those that --problems names."""
    if "network_stopwatch" in metafunc.fixturenames:
        metafunc.parametrize("direction", DIRECTIONS, ids=DIRECTIONS)
    if "problem" not in metafunc.fixturenames or "stopwatch" not in metafunc.fixturenames:
        return
    from d5test.problems.deepbench import deepbench, smallest

    config = metafunc.config
    every = config.getoption("--problems") == "all"
    selection = config.stash[SELECTION]
    known = [*(deepbench() if every else smallest()), *native.problems(selection.natives)]
    problems = [p for p in known if p.case.op.name in selection.operators]
    metafunc.parametrize("problem", problems, ids=[p.name for p in problems])
    metafunc.parametrize("direction", DIRECTIONS, ids=DIRECTIONS)


def timed_line(entry: Mapping[str, Any]) -> str:
    """A record in one line: median and its confidence interval, rate, and how near the bar."""
    low, high = entry["median_interval_95"]
    rate = entry["flop_per_second"]
    pace = f"{rate / 1e9:8.2f} GFLOP/s" if rate else f"{entry['bytes_per_second'] / 1e9:8.2f} GB/s"
    return (
        f"{measured(entry['median'], TIME):>10}  [{measured(low, TIME)}, {measured(high, TIME)}]  "
        f"{pace}  "
        f"{entry['judgement']['ratio']:5.3f} of the bar  "
        f"{entry['problem']} {entry['direction']} {entry['backend']['name']}"
    )


def network_line(entry: Mapping[str, Any]) -> str:
    """A network's record in one line: with throughput, memory and overhead."""
    memory = entry["memory"]["device"] or entry["memory"]["resident"]
    words = [timed_line(entry), f"{entry['samples_per_second']:.4g} samples/s"]
    words.append(f"{memory / 2**20:.0f} MiB at most")
    if "framework_overhead" in entry:
        slowest = max(entry["node_seconds"].items(), key=lambda pair: pair[1])
        words.append(f"{entry['framework_overhead']:.1%} overhead")
        words.append(f"slowest node {slowest[0]}, {measured(slowest[1], TIME)}")
    return ", ".join(words)


def times(item: pytest.Item) -> bool:
    """Whether a test times something that `timed_of` makes."""
    return asks(item, "stopwatch", "network_stopwatch")


def asks(item: pytest.Item, *fixtures: str) -> bool:
    """Whether a test asks for one of the fixtures, and has something to do with it.

    Where there is nothing of an operator, pytest makes a test of nothing, and skips it.
    """
    if item.get_closest_marker("skip"):
        return False
    return not set(fixtures).isdisjoint(getattr(item, "fixturenames", ()))


def subjects(items: Iterable[pytest.Item]) -> list[Any]:
    """What the tests time, those of a backend together."""
    from d5test.timed import Subject

    found = [
        Subject(item.nodeid, item.callspec.params["backend"], partial(_timed, item))  # type: ignore[attr-defined]
        for item in items
        if times(item)
    ]
    return sorted(found, key=lambda subject: subject.backend)


def _timed(item: pytest.Item, client: Any, _: str) -> Any:
    return timed_of(item, client)


def timed_of(item: pytest.Item, client: Any) -> Any:
    """What a test times, on a client (`d5test.timed.Timed`)."""
    params = item.callspec.params  # type: ignore[attr-defined]
    if "problem" in params:
        from d5test.timed import TimedProblem

        cold = item.config.getoption("--cold")
        return TimedProblem(client, params["problem"], params["direction"], cold=cold)
    from d5test.networks.timed import TimedNetwork

    known = item.config.stash.setdefault(EXPECTATIONS, {})
    return TimedNetwork(client, params["network"], params["direction"], known)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Medians with their 95% confidence intervals, which pytest-benchmark does not have."""
    lines = [
        str(text)
        for report in terminalreporter.stats.get("passed", [])
        for name, text in report.user_properties
        if name == TIMED and report.when == "call"
    ]
    if lines:
        terminalreporter.section("d5test: medians, with 95% confidence intervals", sep="=")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(
    config: pytest.Config, benchmarks: list[Any], output_json: dict[str, Any]
) -> None:
    """Drop times that were not verified, say why, and name the backends of the run."""
    from d5test.record import KEY, describe_run

    output_json["benchmarks"] = [
        entry
        for entry in output_json["benchmarks"]
        if entry.get("extra_info", {}).get(KEY, {}).get("valid", True)
    ]
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    output_json[KEY] = describe_run(reporter.stats if reporter else {})
    workers = config.stash.get(WORKERS, None)
    if workers is not None:
        output_json["machine_info"]["d5test"] = {
            name: dict(client.about.packages) for name, client in workers.clients.items()
        }
