"""The corpus, a run of its own: parametrised, judged, and summed up; and what a gate judges of it.

Requirements: a test is a case in one direction, named as in the corpus, so that what vanished or
became worse has a name; what is wrong has a record too, so that a comparison tells by how much;
there are no times, and none are shown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from d5test.plugin.selection import SELECTION
from d5test.plugin.timing import asks

if TYPE_CHECKING:
    from d5test.checks import Fault

FILE = "test_corpus.py"
CORPUS = "d5test-corpus"
"""The name of the entry in a report's `user_properties`."""
DIRECTIONS = ("forward", "backward")
CHECKS_OF = {"forward": "forward", "backward": "gradient"}
"""The check that judges a direction."""
ENVIRONMENT = pytest.StashKey[Mapping[str, Any]]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The corpus is judged only where its file is named: drawing explores, a corpus gates."""
    if collection_path.name != FILE or "operators" not in collection_path.parts:
        return None
    named = any(Path(str(argument).partition("::")[0]).name == FILE for argument in config.args)
    return None if named else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `frozen` by the cases of the selected operators and dtypes."""
    if not {"frozen", "gauge"} <= set(metafunc.fixturenames):
        return
    from d5test.problems.corpus import corpus

    selection = metafunc.config.stash[SELECTION]
    asked = [
        (problem, direction)
        for problem in corpus().problems
        if problem.case.op.name in selection.operators and problem.case.dtype in selection.dtypes
        for direction in DIRECTIONS
        if direction == "forward" or problem.case.op.differentiable
    ]
    ids = [f"{problem.name}-{direction}" for problem, direction in asked]
    metafunc.parametrize(("frozen", "direction"), asked, ids=ids)


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
    except Fault as found:
        if found.judgement is None:
            raise
        judgement, fault = found.judgement, found
    return _record(item.config, client, problem, direction, judgement), fault


def _record(
    config: pytest.Config, client: Any, problem: Any, direction: str, judgement: Any
) -> dict[str, Any]:
    from d5test.problems.corpus import corpus
    from d5test.record import describe_corpus, environment

    stash, known = config.stash, corpus()
    if ENVIRONMENT not in stash:
        stash[ENVIRONMENT] = environment()
    about = {"version": known.version, "hash": known.hash, "data": known.data[problem.name]}
    return describe_corpus(problem, direction, client.about, judgement, about, stash[ENVIRONMENT])


def line(item: pytest.Item, entry: Mapping[str, Any]) -> str:
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


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_benchmark_group_stats() -> Generator[None, list[Any], list[Any]]:
    """Leave out of pytest-benchmark's table what was judged and not timed."""
    from d5test.record import KEY

    groups = yield
    kept = [
        (name, [b for b in found if "corpus" not in b["extra_info"].get(KEY, {})])
        for name, found in groups
    ]
    return [(name, found) for name, found in kept if found]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """For each backend and dtype: cases, classes, and what is closest to its bar."""
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for kind in ("passed", "failed", "xfailed"):
        for report in terminalreporter.stats.get(kind, []):
            for name, text in getattr(report, "user_properties", ()):
                if name == CORPUS and report.when == "call":
                    entry = json.loads(str(text))
                    cells.setdefault((entry["backend"], entry["dtype"]), []).append(entry)
    if not cells:
        return
    from d5test.problems.corpus import corpus

    title = f"d5test: corpus {corpus().version} ({corpus().hash})"
    terminalreporter.section(title, sep="=")
    for (backend, dtype), entries in cells.items():
        terminalreporter.write_line(f"{backend} {dtype}: {_words(entries)}")


def _words(entries: list[Mapping[str, Any]]) -> str:
    classes = Counter(entry["arithmetic"] for entry in entries if entry["arithmetic"])
    counted = [f"{count} of class {name}" for name, count in sorted(classes.items())]
    wrong = sum(not entry["right"] for entry in entries)
    worst = max(entries, key=lambda entry: entry["ratio"])
    words = [f"{len(entries)} judged", *counted, *([f"{wrong} wrong"] if wrong else [])]
    return f"{', '.join(words)}; at most {worst['ratio']:.3g} of the bar: {worst['name']}"
