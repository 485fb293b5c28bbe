"""What pytest-benchmark records, in runs of their own: problems that are timed, and the corpus.

Requirements: `pytest suites/operators` judges and times nothing, since a busy machine spoils both;
`pytest suites/operators/test_time.py` times. A time whose test failed never enters the JSON. With
`--control=N` all is timed by visits in N + 1 runs before the first test: the tests are the same,
with the same names and outcomes, and each takes what was measured for it. There are no visits
where no times are recorded: under xdist, with --benchmark-disable.

A test of the corpus is a case in one direction, named as in the corpus, so that what vanished or
became worse has a name; what is wrong has a record too, so that a comparison tells by how much;
there are no times, and none are shown.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from d5test.metric import TIME, measured
from d5test.plugin import native
from d5test.plugin.budget import VISITED, remaining
from d5test.plugin.outcomes import carried
from d5test.plugin.selection import SELECTION
from d5test.plugin.workers import GATING, WORKERS

if TYPE_CHECKING:
    from d5test.checks import Fault

TIMED, CORPUS = "d5test-timed", "d5test-corpus"
"""The names of the entries in a report's `user_properties`."""
CHECKS_OF = {"forward": "forward", "backward": "gradient"}
"""The directions, and the check that judges each."""
EXPECTATIONS = pytest.StashKey[dict[Any, Any]]()
"""What the references expect of the networks that are timed."""
ENVIRONMENT = pytest.StashKey[Mapping[str, Any]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `problem` by those that --problems names, `frozen` by the corpus."""
    config, asked = metafunc.config, set(metafunc.fixturenames)
    selection = config.stash[SELECTION]
    if "network_stopwatch" in asked:
        metafunc.parametrize("direction", CHECKS_OF)
    if {"problem", "stopwatch"} <= asked:
        from d5test.problems.deepbench import deepbench, smallest

        every = config.getoption("--problems") == "all"
        known = [*(deepbench() if every else smallest()), *native.problems(selection.natives)]
        problems = [p for p in known if p.case.op.name in selection.operators]
        metafunc.parametrize("problem", problems, ids=[p.name for p in problems])
        metafunc.parametrize("direction", CHECKS_OF)
    if {"frozen", "gauge"} <= asked:
        from d5test.problems.corpus import corpus

        frozen = [
            (p, direction)
            for p in corpus().problems
            if p.case.op.name in selection.operators and p.case.dtype in selection.dtypes
            for direction in CHECKS_OF
            if direction == "forward" or p.case.op.differentiable
        ]
        ids = [f"{problem.name}-{direction}" for problem, direction in frozen]
        metafunc.parametrize(("frozen", "direction"), frozen, ids=ids)


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

    timed = [
        Subject(item.nodeid, item.callspec.params["backend"], partial(timed_of, item))  # type: ignore[attr-defined]
        for item in items
        if asks(item, "stopwatch", "network_stopwatch")
    ]
    return sorted(timed, key=lambda subject: subject.backend)


def timed_of(item: pytest.Item, client: Any, arm: str = "") -> Any:
    """What a test times, on a client (`d5test.timed.Timed`), whatever the arm."""
    params = item.callspec.params  # type: ignore[attr-defined]
    if "problem" in params:
        from d5test.timed import TimedProblem

        cold = item.config.getoption("--cold")
        return TimedProblem(client, params["problem"], params["direction"], cold=cold)
    from d5test.networks.timed import TimedNetwork

    known = item.config.stash.setdefault(EXPECTATIONS, {})
    return TimedNetwork(client, params["network"], params["direction"], known)


def cases(items: Iterable[pytest.Item]) -> list[Any]:
    """What the tests judge, for a gate."""
    from d5test.gate.corpus import Frozen

    return [
        Frozen(item.nodeid, item.callspec.params["backend"], partial(judged, item))  # type: ignore[attr-defined]
        for item in items
        if asks(item, "gauge")
    ]


def judged(item: pytest.Item, client: Any) -> tuple[dict[str, Any], Fault | None]:
    """The record of a test's case on a client, and the fault if it is one.

    Raises `Unsupported`, what the client raises, and a fault that has no judgement.
    """
    from d5test.backends.base import Unsupported
    from d5test.checks import CHECKS, Fault
    from d5test.outcome.tally import Inapplicable
    from d5test.problems.corpus import corpus
    from d5test.record import describe_corpus, environment

    params = item.callspec.params  # type: ignore[attr-defined]
    problem, direction = params["frozen"], params["direction"]
    check = CHECKS[CHECKS_OF[direction]]
    why_not = check.reason(type(problem.case.op), client.about, problem.case.dtype)
    if why_not:
        raise Unsupported(str(why_not))
    try:
        judgement, fault = check.run(client, problem.case), None
    except Inapplicable as why:
        raise Unsupported(str(why)) from None
    except Fault as wrong:
        if wrong.judgement is None:
            raise
        judgement, fault = wrong.judgement, wrong
    whole, stash = corpus(), item.config.stash
    if ENVIRONMENT not in stash:
        stash[ENVIRONMENT] = environment()
    source = {"version": whole.version, "hash": whole.hash, "data": whole.data[problem.name]}
    entry = describe_corpus(
        problem, direction, client.about, judgement, source, stash[ENVIRONMENT]
    )
    return entry, fault


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Visit what the tests time."""
    config, option = session.config, session.config.option
    if not option.control or option.collectonly or session.testsfailed or GATING in config.stash:
        return
    if option.benchmark_disable or hasattr(config, "workerinput"):
        return
    timed = subjects(session.items)
    if not timed:
        return
    import numpy as np

    from d5test.visits import Visits

    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"{len(timed)} benchmarks, timed in {option.control + 1} runs")
    visits = Visits(
        config.stash[WORKERS].several,
        option.control + 1,
        np.random.default_rng(option.seed),
        until=time.monotonic() + remaining(config),
    )
    config.stash[VISITED] = visits.measure(timed)


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


def corpus_line(item: pytest.Item, entry: Mapping[str, Any]) -> str:
    """What the end of a run says of a record, as it travels in reports."""
    params, judgement = item.callspec.params, entry["judgement"]  # type: ignore[attr-defined]
    return json.dumps(
        {
            "backend": params["backend"],
            "dtype": entry["dtype"],
            "name": f"{entry['problem']} {entry['direction']}",
            "right": judgement["right"],
            "ratio": inf if judgement["ratio"] is None else judgement["ratio"],
            "arithmetic": judgement["arithmetic"],
        }
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What pytest-benchmark does not have: confidence intervals of medians, and the corpus.

    Of the corpus, for each backend and dtype: cases, classes, and what is closest to its bar.
    """
    lines = carried(terminalreporter, TIMED, "passed")
    if lines:
        terminalreporter.section("d5test: medians, with 95% confidence intervals", sep="=")
        for line in lines:
            terminalreporter.write_line(str(line))
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for text in carried(terminalreporter, CORPUS, "passed", "failed", "xfailed"):
        entry = json.loads(text)
        cells.setdefault((entry["backend"], entry["dtype"]), []).append(entry)
    if cells:
        from d5test.problems.corpus import corpus

        terminalreporter.section(f"d5test: corpus {corpus().version} ({corpus().hash})", sep="=")
    for (backend, dtype), entries in cells.items():
        terminalreporter.write_line(f"{backend} {dtype}: {_words(entries)}")


def _words(entries: list[Mapping[str, Any]]) -> str:
    classes = Counter(entry["arithmetic"] for entry in entries if entry["arithmetic"])
    counted = [f"{count} of class {name}" for name, count in sorted(classes.items())]
    wrong = sum(not entry["right"] for entry in entries)
    worst = max(entries, key=lambda entry: entry["ratio"])
    words = [f"{len(entries)} judged", *counted, *([f"{wrong} wrong"] if wrong else [])]
    return f"{', '.join(words)}; at most {worst['ratio']:.3g} of the bar: {worst['name']}"


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_benchmark_group_stats() -> Generator[None, list[Any], list[Any]]:
    """Leave out of pytest-benchmark's table what was judged and not timed."""
    from d5test.record import KEY

    groups = yield
    kept = [
        (name, [b for b in members if "corpus" not in b["extra_info"].get(KEY, {})])
        for name, members in groups
    ]
    return [(name, members) for name, members in kept if members]


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
