"""Tests that another process ran: their reports on the way, and what pytest hears of them here.

Requirements: what pytest and its plugins hear is what they would hear if the tests ran here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def plain(config: pytest.Config, report: Any) -> dict[str, Any]:
    """A report as values that JSON has."""
    hook = config.hook
    data: dict[str, Any] = hook.pytest_report_to_serializable(config=config, report=report)
    return data


def rebuilt(config: pytest.Config, data: Mapping[str, Any]) -> Any:
    """The report that `plain` took apart; JSON has no tuples, and pytest insists on them."""
    entries = dict(data)
    for name in ("location", "longrepr"):
        if isinstance(entries.get(name), list):
            entries[name] = tuple(entries[name])
    for name in ("sections", "user_properties"):
        entries[name] = [tuple(pair) for pair in entries.get(name, ())]
    return config.hook.pytest_report_from_serializable(config=config, data=entries)


def hear(config: pytest.Config, reports: Iterable[Mapping[str, Any]]) -> None:
    """Tell pytest of the phases of one test, from its start to its finish."""
    phases = [rebuilt(config, report) for report in reports]
    for begins in phases[:1]:
        config.hook.pytest_runtest_logstart(nodeid=begins.nodeid, location=begins.location)
    for report in phases:
        config.hook.pytest_runtest_logreport(report=report)
    for ended in phases[-1:]:
        config.hook.pytest_runtest_logfinish(nodeid=ended.nodeid, location=ended.location)
