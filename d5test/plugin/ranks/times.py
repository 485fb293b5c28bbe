"""What pytest-benchmark measured in one process, reported by that of another.

Requirements: the table and the JSON of the process that reports are those of the one that
measured: every round is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

FIELDS = ("name", "fullname", "group", "param", "params", "extra_info", "iterations", "options")


def of(config: pytest.Config) -> list[dict[str, Any]]:
    """What was measured in this process, in plain values."""
    session = getattr(config, "_benchmarksession", None)
    return [_plain(timed) for timed in session.benchmarks] if session is not None else []


def put(config: pytest.Config, timed: Iterable[Mapping[str, Any]]) -> None:
    """Report what another process has measured."""
    from pytest_benchmark.stats import Metadata

    session: Any = getattr(config, "_benchmarksession", None)
    for entry in timed:
        fixture = SimpleNamespace(**entry, cprofile_stats=None)
        metadata = Metadata(fixture, iterations=entry["iterations"], options=entry["options"])
        for seconds in entry["data"]:
            metadata.stats.update(seconds)
        session.benchmarks.append(metadata)


def _plain(timed: Any) -> dict[str, Any]:
    plain = {name: getattr(timed, name) for name in FIELDS}
    named = {n: getattr(v, "__name__", v) for n, v in timed.options.items()}
    return {**plain, "options": named, "has_error": timed.has_error, "data": timed.stats.data}
