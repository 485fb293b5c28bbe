"""The smallest sides with which a fault of large ones is there.

Hypothesis reduces what it has drawn; a side at which kernels change is no number that it draws.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from math import prod

from d5test.case import Case
from d5test.outcome.fault import Fault

LITTLE = 7
"""Sides up to which a case is small already."""

Again = Callable[[Case | None, str], Fault | None]
"""The fault of a kind that a case has; `None` too where there is no such case."""


def bisected(fault: Fault, again: Again, until: float) -> Fault:
    """The fault with the smallest sides that have it in place of its large ones.

    Those of one size together, so that what has to agree agrees, and then each by itself. `until`
    is the time (of `time.monotonic`) at which to stop.
    """
    for size in sorted(set(_sides(fault.case)), reverse=True):
        fault = _with_smaller(fault, again, until, size)
    for place in range(len(_sides(fault.case))):
        fault = _with_smaller(fault, again, until, _sides(fault.case)[place], place)
    return fault


def _with_smaller(
    fault: Fault, again: Again, until: float, size: int, place: int | None = None
) -> Fault:
    """The fault with the least in place of the sides of `size`, or of the one at a place."""
    least = 1 if size > LITTLE else size
    while size - least > 1 and time.monotonic() < until:
        middle = (least + size) // 2
        smaller = again(_resized(fault.case, size, middle, place), fault.kind)
        if smaller is None:
            least = middle
        else:
            fault, size = smaller, middle
    return fault


def _sides(case: Case) -> list[int]:
    """The sides of all inputs, in order."""
    return [side for shape in case.shapes for side in shape or ()]


def _resized(case: Case, old: int, new: int, place: int | None) -> Case | None:
    """The case with `new` in place of each side `old`, or of the one at a place among all sides.

    `None` where values stand in a tensor whose size would change.
    """
    places, inputs = count(), []
    for t in case.inputs:
        if t is not None:
            shape = tuple(
                new if side == old and place in (None, i) else side
                for side, i in zip(t.shape, places, strict=False)
            )
            if t.data is not None and len(t.data) != prod(shape):
                return None
            t = replace(t, shape=shape)
        inputs.append(t)
    return replace(case, inputs=tuple(inputs))
