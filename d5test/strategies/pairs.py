"""Which pairs of attribute values the cases of a cell have met.

Most faults of combinations are of two attributes (Kuhn, Wallace and Gallo, *Software Fault
Interactions and Implications for Software Testing*, 2004), and attributes that are drawn by
themselves leave some pairs of values out for long. So a case that brings no pair of its own is
passed over while there may be another.

A value stands for those that are like it: a number for its sign and whether it is the default, a
tuple of equal numbers for that number. Whether an optional input is there is an attribute, too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from itertools import combinations
from typing import Any

from d5test.case import Case

IN_VAIN = 4
"""Cases that are passed over, one after the other, for want of a new pair."""
ALL_MET = 8
"""Cases without a new pair, one after the other, after which all are taken for met."""
COUNTED = 4
"""Whole numbers up to this magnitude are values of their own."""

Value = tuple[str, Any]
Pair = tuple[Value, Value]


class Pairs:
    """The pairs that were met so far, of the cases that are judged."""

    def __init__(self) -> None:
        self.met: set[Pair] = set()
        self._passed = 0
        self._vain = 0

    def passes(self, case: Case) -> bool:
        """Whether to pass over a case; one that is not counts as met."""
        new = set(pairs_of(case)) - self.met
        self._vain = 0 if new else self._vain + 1
        if self.met and not new and self._passed < IN_VAIN and self._vain < ALL_MET:
            self._passed += 1
            return True
        self._passed = 0
        self.met |= new
        return False


def pairs_of(case: Case) -> Iterator[Pair]:
    """The pairs of values of a case; of one attribute alone, none."""
    return combinations(values_of(case), 2)


def values_of(case: Case) -> Iterator[Value]:
    """The attributes of a case, each with what its value stands for."""
    for field in fields(case.op):
        value = getattr(case.op, field.name)
        usual = field.default is not MISSING and value == field.default
        yield field.name, _like(value, usual)
    for i, tensor in enumerate(case.inputs):
        yield f"input {i}", tensor is not None


def _like(value: Any, usual: bool) -> Any:
    if isinstance(value, float):
        return "default" if usual else (value > 0) - (value < 0)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-COUNTED - 1, min(value, COUNTED + 1))
    if isinstance(value, tuple | list):
        return _like_all(value)
    return value if isinstance(value, bool | str | None) else repr(value)


def _like_all(values: Iterable[Any]) -> Any:
    """Of a tuple: whether all of its numbers are 0, 1, or more, or they differ."""
    kinds = {min(value, 2) if isinstance(value, int) else value for value in values}
    return ("all", *kinds) if len(kinds) == 1 else len(kinds) > 1
