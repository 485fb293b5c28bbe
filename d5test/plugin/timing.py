"""Problems to be timed, a run of its own: parametrised, and kept out of runs that judge.

Requirements: `pytest suites/operators` judges and times nothing, since a busy machine spoils both;
`pytest suites/operators/test_time.py` times. A time whose test failed never enters the JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from d5test.plugin.selection import SELECTION
from d5test.plugin.workers import WORKERS

FILE = "test_time.py"
DIRECTIONS = ("forward", "backward")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Times are measured only where their file is named."""
    if collection_path.name != FILE or "operators" not in collection_path.parts:
        return None
    named = any(Path(str(argument).partition("::")[0]).name == FILE for argument in config.args)
    return None if named else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise what asks for `problem` by those that --problems names."""
    if "problem" not in metafunc.fixturenames or "stopwatch" not in metafunc.fixturenames:
        return
    from d5test.problems import deepbench, smallest

    config = metafunc.config
    every = config.getoption("--problems") == "all"
    wanted = config.stash[SELECTION].operators
    problems = [p for p in (deepbench() if every else smallest()) if p.case.op.name in wanted]
    metafunc.parametrize("problem", problems, ids=[p.name for p in problems])
    metafunc.parametrize("direction", DIRECTIONS, ids=DIRECTIONS)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(
    config: pytest.Config, benchmarks: list[Any], output_json: dict[str, Any]
) -> None:
    """Drop times that were not verified, and name the backends of the run."""
    output_json["benchmarks"] = [
        entry
        for entry in output_json["benchmarks"]
        if entry.get("extra_info", {}).get("d5test", {"valid": True})["valid"]
    ]
    workers = config.stash.get(WORKERS, None)
    if workers is not None:
        output_json["machine_info"]["d5test"] = {
            name: dict(client.about.packages) for name, client in workers.clients.items()
        }
