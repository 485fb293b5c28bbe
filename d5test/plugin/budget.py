"""A run that ends in time, and says what it left out.

Requirements: the clock starts with the run, once for all processes of xdist; a test that has not
begun when the time is over is skipped and counted, an exploration that has begun stops drawing;
what was measured before it is judged.
"""

import time
from typing import Any

import pytest

from d5test.outcome.tally import Tally
from d5test.plugin.outcomes import attach

END = pytest.StashKey[float]()
"""When the budget is spent, by `time.time`, which the processes of one machine share."""
VISITED = pytest.StashKey[dict[str, Any]]()
"""What --control measured before the first test, by the test's name: `d5test.visits.Visited`."""


def pytest_configure(config: pytest.Config) -> None:
    """Start the clock, or read the one that was started."""
    budget = config.getoption("--budget")
    if budget is not None:
        workerinput = getattr(config, "workerinput", {})
        config.stash[END] = workerinput.get("d5test_end", time.time() + budget)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist: hand the end of the budget to a process."""
    if END in node.config.stash:
        node.workerinput["d5test_end"] = node.config.stash[END]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out when the time is over."""
    if remaining(item.config) > 0 or item.nodeid in item.config.stash.get(VISITED, {}):
        return
    params = getattr(getattr(item, "callspec", None), "params", {})
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
