"""`--control=N`: before the first test, all that is timed is timed in N + 1 runs, by visits.

Requirements: the tests are the same, with the same names and outcomes; each takes what was
measured for it. There are no visits where no times are recorded: under xdist, with
--benchmark-disable.
"""

from __future__ import annotations

import time

import pytest

from d5test.plugin.budget import remaining
from d5test.plugin.timing import VISITED, subjects
from d5test.plugin.workers import GATING, WORKERS


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Visit what the tests time."""
    config, option = session.config, session.config.option
    if not option.control or option.collectonly or session.testsfailed or GATING in config.stash:
        return
    if option.benchmark_disable or hasattr(config, "workerinput"):
        return
    found = subjects(session.items)
    if not found:
        return
    import numpy as np

    from d5test.visits import Visits

    _tell(config, f"{len(found)} benchmarks, timed in {option.control + 1} runs")
    visits = Visits(
        config.stash[WORKERS].several,
        option.control + 1,
        np.random.default_rng(option.seed),
        until=time.monotonic() + remaining(config),
    )
    config.stash[VISITED] = visits.measure(found)


def _tell(config: pytest.Config, line: str) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(line)
