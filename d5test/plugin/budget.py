"""A run that ends in time, and says what it left out.

Requirements: the clock starts with the run, once for all processes of xdist; a test that has not
begun when the time is over is skipped and counted, an exploration that has begun stops drawing;
what was measured before it is judged.
"""

from __future__ import annotations

import time

import pytest

from d5test.outcome.tally import Tally
from d5test.plugin.outcomes import attach
from d5test.plugin.timing import VISITED

END = pytest.StashKey[float]()
"""When the budget is spent, by `time.time`, which the processes of one machine share."""


def pytest_configure(config: pytest.Config) -> None:
    """Start the clock, or read the one that was started."""
    budget = config.getoption("--budget")
    if budget is not None:
        given = getattr(config, "workerinput", {}).get("d5test_end")
        config.stash[END] = given if given is not None else time.time() + budget


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """xdist: hand the end of the budget to a process."""
    end = node.config.stash.get(END, None)  # type: ignore[attr-defined]
    if end is not None:
        node.workerinput["d5test_end"] = end  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out when the time is over."""
    if remaining(item.config) > 0 or item.nodeid in item.config.stash.get(VISITED, {}):
        return
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec is not None else {}
    cell = params.get("cell")
    mark = item.get_closest_marker("check")
    tally = Tally(
        backend=str(params.get("backend", "")),
        check=str(mark.args[0].name) if mark is not None else item.name.partition("[")[0],
        operator=cell.operator.__name__ if cell is not None and cell.operator else "",
        dtype=cell.dtype if cell is not None else "",
        left_out="the budget was spent",
    )
    attach(item, [tally])
    pytest.skip("left out: the budget was spent")


def remaining(config: pytest.Config) -> float:
    """Seconds until the budget is spent; infinite without one."""
    end = config.stash.get(END, None)
    return float("inf") if end is None else end - time.time()
