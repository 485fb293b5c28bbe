"""Numbers of a file: what a quantity can be, and what no clock, memory or count can give.

Requirements: a number that nothing can have measured is an `Unreadable` of one line, so that no
verdict is computed from it; sums, squares and quotients of what is accepted are finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from d5test.metric import (
    ARITHMETIC,
    CLASSES,
    MEMORY,
    MESSAGES,
    RATIO,
    RESIDENT,
    RIGHT,
    SHARE,
    TIME,
    TRAFFIC,
    Metric,
)

LARGEST = 1e100
"""No quantity is larger, nor is a positive one smaller than its inverse."""
RANGES: Mapping[Metric, tuple[float, float]] = {
    TIME: (1e-9, 1e7),  # of one call: a nanosecond, the tick of clocks, to four months
    RESIDENT: (1, 2**63),
    MEMORY: (0, 2**63),
    MESSAGES: (0, 2**63),
    TRAFFIC: (0, 2**63),
    RATIO: (0, inf),
    SHARE: (0, 1),
    RIGHT: (0, 1),
    ARITHMETIC: (0, len(CLASSES) - 1),
}
"""What our metrics can be, both ends included."""
WHOLE = (RESIDENT, MEMORY, MESSAGES, TRAFFIC, RIGHT, ARITHMETIC)
"""Metrics that are counted."""
SPREAD = 1000
"""Runs of one version differ by less: that would be another machine or a mistake, not noise."""
SHORT = 60
"""Characters of a value that are shown."""


class Unreadable(ValueError):
    """A file that cannot be compared, and why, in one line."""


def told(value: Any, longest: int = SHORT) -> str:
    """A value of a stranger's in one short line, without what a terminal would obey."""
    try:
        text = ascii(value) if isinstance(value, str | int | float | None) else _kind(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        text = "a number of too many digits"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _kind(value: Any) -> str:
    return type(value).__name__


def number(value: Any, what: str) -> float:
    """A finite number of any size that something has, or an `Unreadable`."""
    found = finite_number(value, what)
    if abs(found) > LARGEST:
        raise Unreadable(f"{what} is {found:g}; nothing is larger than {LARGEST:g}")
    return found


def finite_number(value: Any, what: str) -> float:
    """A finite number, or an `Unreadable`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable(f"{what} is {told(value)}, not a number")
    if not finite(value):
        raise Unreadable(f"{what} is {told(value)}, not a finite number")
    return float(value)


def finite(value: float) -> bool:
    """Whether a float holds it: JSON's integers have no end."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def positive(value: Any, what: str) -> float:
    """A number above zero, or an `Unreadable`."""
    found = number(value, what)
    if found <= 0:
        raise Unreadable(f"{what} is {found:g}, not above zero")
    if found < 1 / LARGEST:
        raise Unreadable(f"{what} is {found:g}; nothing is smaller than {1 / LARGEST:g}")
    return found


def count(value: Any, what: str, least: int = 0, most: float = 2**63) -> int:
    """A whole number, or an `Unreadable`."""
    found = number(value, what)
    if not found.is_integer():
        raise Unreadable(f"{what} is {found:g}, not a whole number")
    return int(within(found, what, least, most))


def within(found: float, what: str, least: float, most: float) -> float:
    """A number that lies between two, or an `Unreadable`."""
    if not least <= found <= most:
        raise Unreadable(f"{what} is {found:g}, not from {least:g} to {most:g}")
    return found


def value_of(metric: Metric, value: Any, what: str) -> float:
    """A value that the metric can have, or an `Unreadable`."""
    kind = replace(metric, tolerance=0.0)
    if kind == RATIO:  # a wrong result may be off by any number of bars
        return within(finite_number(value, what), what, *RANGES[kind])
    found = positive(value, what) if metric.gate == "noise" else number(value, what)
    if kind == TIME:
        least, most = RANGES[TIME]
        if not least <= found <= most:
            raise Unreadable(
                f"{what} is {found:g} s; no clock gives that of a call ({least:g} to {most:g} s)"
            )
    elif kind in WHOLE:
        return count(value, what, *map(int, RANGES[kind]))
    elif kind in RANGES:
        within(found, what, *RANGES[kind])
    return found
