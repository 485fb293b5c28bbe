"""What stands in a benchmark's entry beside its metrics: for the report, which lists and draws it.

Requirements: nothing here is decided upon, so that what is missing or of another type is absent
and no mistake; texts are short, numbers finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from d5test.compare.entry import field as at
from d5test.compare.numbers import Unreadable, finite
from d5test.compare.rounds import Rounds, rounds_of, unpacked
from d5test.record import KEY

Fact = str | float | bool
LONGEST = 160
"""Characters of a text."""
ABOUT = {
    KEY: (
        "problem", "source", "dtype", "direction", "multiplications", "backend.name", "median",
        "median_interval_95.0", "flop_per_second",
    ),
    "scaling": (
        "optimizer", "mode", "ranks", "samples", "network", "backend.name", "median",
        "median_interval_95.0", "median_interval_95.1", "samples_per_second", "load_imbalance",
        "base.samples_per_second",
    ),
    "communication": ("ranks", "contribution_bytes", "imbalance"),
}  # fmt: skip
"""Where it stands in the objects of `extra_info`."""


@dataclass(frozen=True)
class Detail:
    """Of one benchmark in one run.

    about    facts by their path in `extra_info`, those of `ABOUT` that are there
    count    the number of rounds
    rounds   wall seconds of some of them, in order, evenly spaced
    """

    about: Mapping[str, Fact] = field(default_factory=dict)
    count: int = 0
    rounds: Rounds = field(default_factory=lambda: rounds_of([]), compare=False)


NOTHING = Detail()
"""Of a run that was read to be compared alone."""


def detail_of(benchmark: Mapping[str, Any]) -> Detail:
    """Of an entry of the list `benchmarks`, of which `entry_of` has read what is compared."""
    extra = benchmark.get("extra_info") or {}
    about = {
        f"{key}.{path}": fact
        for key, paths in ABOUT.items()
        if key in extra
        for path in paths
        if (fact := fact_of(at(extra[key], path))) is not None
    }
    data = benchmark["stats"].get("data")
    if not isinstance(data, dict):
        return Detail(about)
    try:
        return Detail(about, int(data["count"]), unpacked(data["some"]))
    except (KeyError, TypeError, ValueError):
        raise Unreadable("its rounds are damaged") from None


def fact_of(value: Any) -> Fact | None:
    """A short text, a finite number, true or false; else None."""
    if isinstance(value, str):
        return value[:LONGEST]
    if isinstance(value, bool):
        return value
    return value if isinstance(value, int | float) and finite(value) else None


def positive_at(about: Mapping[str, Fact], path: str) -> float | None:
    """The number above zero at a path; None where there is none."""
    found = about.get(path)
    return float(found) if isinstance(found, int | float) and found > 0 else None
