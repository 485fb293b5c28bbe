"""Values of a file: looked up, checked, and shown in one short line.

Requirements: a value that cannot be used is an `Unreadable` of one line, so that no verdict is
computed from it; sums, squares and quotients of accepted numbers are finite.
"""

import math
from collections.abc import Mapping
from typing import Any

LARGEST = 1e100
"""No quantity is larger, nor is a positive one smaller than its inverse."""
SPREAD = 1000
"""Runs of one version differ by less: that would be another machine or a mistake, not noise."""
SHORT, LONG = 60, 160
"""Characters that are shown of a value, and of a benchmark's name."""


class Unreadable(ValueError):
    """A file that cannot be compared, and why, in one line."""


def quoted(value: Any, longest: int = SHORT) -> str:
    """A value of a stranger's in one short line, without what a terminal would obey."""
    known = isinstance(value, str | int | float | None)
    try:
        text = ascii(value) if known else type(value).__name__
    except ValueError:  # Python writes no integer of more than 4,300 digits
        text = "a number of too many digits"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def named(benchmark: str) -> str:
    """The name of a benchmark in a line, without the path of its file if it is long."""
    path, bracket, parameters = benchmark.partition("[")
    test = f"{path.rpartition('::')[2]}{bracket}{parameters}"
    return quoted(benchmark if len(benchmark) < SHORT else test, LONG)


def lookup(value: Any, path: str) -> Any:
    """What stands at a dotted path (a number is a place in a list); None where nothing does."""
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """A JSON object, or an `Unreadable`."""
    if not isinstance(value, dict):
        raise Unreadable(f"{what} is {quoted(value)}, not an object")
    return value


def number(value: Any, what: str, largest: float = LARGEST) -> float:
    """A finite number of any size that something has, or an `Unreadable`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable(f"{what} is {quoted(value)}, not a number")
    if not finite(value):
        raise Unreadable(f"{what} is {quoted(value)}, not a finite number")
    if abs(value) > largest:
        raise Unreadable(f"{what} is {value:g}; nothing is larger than {largest:g}")
    return float(value)


def finite(value: float) -> bool:
    """Whether a float holds it: JSON's integers have no end."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def positive(value: Any, what: str) -> float:
    """A number above zero, or an `Unreadable`."""
    checked = number(value, what)
    if checked <= 0:
        raise Unreadable(f"{what} is {checked:g}, not above zero")
    if checked < 1 / LARGEST:
        raise Unreadable(f"{what} is {checked:g}; nothing is smaller than {1 / LARGEST:g}")
    return checked


def count(value: Any, what: str, least: int = 0, most: float = 2**63) -> int:
    """A whole number, or an `Unreadable`."""
    checked = number(value, what)
    if not checked.is_integer():
        raise Unreadable(f"{what} is {checked:g}, not a whole number")
    return int(within(checked, what, least, most))


def within(value: float, what: str, least: float, most: float) -> float:
    """A number that lies between two, or an `Unreadable`."""
    if not least <= value <= most:
        raise Unreadable(f"{what} is {value:g}, not from {least:g} to {most:g}")
    return value
