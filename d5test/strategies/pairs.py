"""Which pairs of attribute values the cases of a cell have met.

Most faults of combinations are of two attributes (Kuhn, Wallace and Gallo, *Software Fault
Interactions and Implications for Software Testing*, 2004), and attributes that are drawn by
themselves leave some pairs of values out for long. So a case that brings fewer new pairs than
others do is passed over while there may be another. Fast paths are taken where all but a few
attributes are the default: a case whose one or two others were not met alone is judged, too.

A value stands for those that are like it: a number for its sign and whether it is the default, a
tuple of equal numbers for that number. Whether an optional input is there is an attribute, too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from itertools import combinations
from typing import Any

from d5test.case import Case

IN_VAIN = 4
"""Cases that are passed over, one after the other, for want of new pairs."""
FEW = 0.7
"""The share of the new pairs of late cases with which one is passed over."""
LATE = 0.25
"""What the last of them counts in their mean."""
ALL_MET = 8
"""Cases without a new pair, one after the other, after which all are taken for met."""
MANY = 5
"""Attributes with which an operator has fast paths for the most usual ones."""
COUNTED = 4
"""Whole numbers up to this magnitude are values of their own."""

Value = tuple[Any, Any]
Pair = tuple[Value, Value]


class Pairs:
    """The pairs that were met so far, of the cases that are judged."""

    def __init__(self) -> None:
        self.met: set[Pair] = set()
        self._usual = 0.0
        self._passed = 0
        self._vain = 0

    def passes(self, case: Case) -> bool:
        """Whether to pass over a case; one that is not counts as met."""
        new = set(pairs_of(case)) - self.met
        lone = alone(case) - self.met
        few = not lone and (not new or len(new) < FEW * self._usual)
        self._usual += LATE * (len(new) - self._usual)
        self._vain = 0 if new or lone else self._vain + 1
        if self.met and few and self._passed < IN_VAIN and self._vain < ALL_MET:
            self._passed += 1
            return True
        self._passed = 0
        self.met |= new | lone
        return False


def pairs_of(case: Case) -> Iterator[Pair]:
    """The pairs of values of a case; of one attribute alone, none."""
    return combinations(values_of(case), 2)


def alone(case: Case) -> frozenset[Value]:
    """The one or two of `MANY` attributes that are not the default, as one value; else nothing."""
    if len(fields(case.op)) < MANY:
        return frozenset()
    set_ = [
        (field.name, _like(value, False))
        for field in fields(case.op)
        if not _is_default(field, value := getattr(case.op, field.name))
    ]
    there = tuple(tensor is not None for tensor in case.inputs)
    return frozenset({(("alone", *set_), there)} if 0 < len(set_) <= 2 else ())


def values_of(case: Case) -> Iterator[Value]:
    """The attributes of a case, each with what its value stands for."""
    for field in fields(case.op):
        value = getattr(case.op, field.name)
        yield field.name, _like(value, _is_default(field, value))
    for i, tensor in enumerate(case.inputs):
        yield f"input {i}", tensor is not None


def _is_default(field: Field[Any], value: Any) -> bool:
    return field.default is not MISSING and bool(value == field.default)


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
