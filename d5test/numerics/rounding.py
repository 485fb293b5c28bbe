"""Are results rounded to nearest, or always in one direction? A bias below one ULP.

An output is granted one ULP: either neighbour of the exact value is right. Rounding that always
goes the same way, as chopping the bits of bfloat16 does, stays within it everywhere. So all
elements of all cases of a cell are looked at together.

Those are told from that are within a quarter of the spacing of a number of storage, and not on it.
Rounding to nearest gives that number. Of some of them a direction gives its neighbour, which is
more than three quarters off (`against`); of the others the same number (`along`). A direction is
convicted where nine in ten of either went its way, and so many of the first that chance makes
them once in a thousand million cells.

Who is never accused: an implementation whose result before its last rounding is at most a quarter
of a ULP off. Who hardly ever is: one whose errors before that are as often positive as negative.
Each element goes the wrong way with a probability of 1/2 at most then, if they are independent.
Errors of one case may all be one (that of a sum which its elements share): so at most `OF_CASE`
elements of a case are counted, and `CASES` cases have to show both sorts. A normally distributed
error explains one element of either sort with a probability of 0.14 at most, whatever its size;
twelve cases, 6e-11. Where each element is one sum, difference or product (`ALONE`), nothing is
shared: more of its elements are counted, and pairs of them instead of cases. And one with an error
in one direction: to be convicted, it would have to be off by 0.45 to 0.55 ULPs at nine elements of
ten, which is what directed rounding is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from d5test.numerics.bounds import Array, Bounds

DIRECTIONS = ("toward zero", "away from zero", "down", "up")
NEAR = 0.25
"""Of the spacing: up to so far from a number of storage the nearest one is beyond doubt."""
ON = 1 / 32
"""Of the spacing: what is less far off may be that number, for honest arithmetic of more bits."""
KNOWN = 2.0**16
"""Bars above so many ULPs belong to values of which float64 may not know the fraction of a ULP."""
WIDEST = 24
"""Bits of the widest format whose roundings the reference, in float64, can tell: float32's."""
OF_CASE = 8
"""Elements of a case that are counted, of either sort."""
CASES = 12
"""Cases that have to show elements of both sorts, or pairs of elements that share no error."""
ALONE = ("Add", "Sub", "Mul")
"""Operators whose elements are each one operation of two numbers: they share no error. A quotient
may: that of the reciprocal of one divisor."""
OF_CASE_ALONE = 32
"""As `OF_CASE`, of these operators."""
MOST = 1024
"""Elements of a result that are looked at."""
SHARE = 0.9
"""Of the elements that a direction has to explain."""
FALSE_ALARM = 1e-9
"""How often an honest cell may be accused."""
QUESTIONS = 3 * len(DIRECTIONS)
"""That are asked of a cell: of all its cases, and of two parts of them."""


@dataclass(frozen=True)
class Way:
    """How many elements could tell a direction, and how many went its way.

    against, followed  elements that rounding to nearest takes the other way; those that went
    along, kept        elements that it takes the same way; those that went
    seen               elements of the first sort, those that are not counted included
    cases              that have elements of both sorts, or pairs of such elements (see `CASES`)
    """

    against: int = 0
    followed: int = 0
    along: int = 0
    kept: int = 0
    seen: int = 0
    cases: int = 0

    def __add__(self, other: Way) -> Way:
        return Way(
            self.against + other.against,
            self.followed + other.followed,
            self.along + other.along,
            self.kept + other.kept,
            self.seen + other.seen,
            self.cases + other.cases,
        )

    @property
    def explains(self) -> bool:
        """Whether nearly all elements went this way."""
        return self.followed >= SHARE * self.against and self.kept >= SHARE * self.along

    @property
    def chance(self) -> float:
        """How probable it is that so many went against rounding to nearest, each with 1/2."""
        return float(bdtrc(self.followed - 1, self.against, 0.5)) if self.followed else 1.0

    @property
    def convicted(self) -> bool:
        """Whether the cell is rounded this way, and not by chance."""
        rare = self.chance <= FALSE_ALARM / QUESTIONS
        return rare and self.explains and self.cases >= CASES


@dataclass(frozen=True)
class Rounding:
    """How some results are rounded.

    elements  that lie between two numbers of storage, and became one of them
    nearest   of them those that became the nearer one
    error     the sum of their errors in ULPs, positive where they are away from zero
    ways      what they tell of each direction
    """

    elements: int = 0
    nearest: int = 0
    error: float = 0.0
    ways: Mapping[str, Way] = field(default_factory=dict)

    def __add__(self, other: Rounding) -> Rounding:
        ways = {
            name: self.ways.get(name, Way()) + other.ways.get(name, Way())
            for name in (*self.ways, *(name for name in other.ways if name not in self.ways))
        }
        return Rounding(
            self.elements + other.elements,
            self.nearest + other.nearest,
            self.error + other.error,
            ways,
        )

    @property
    def direction(self) -> str:
        """The direction in which everything is rounded; empty where it is to nearest."""
        return next((name for name, way in self.ways.items() if way.convicted), "")


def rounding_of(
    bounds: Bounds, results: Sequence[Array | None], *, alone: bool = False
) -> Rounding:
    """How the results of one case are rounded; nothing is said of float64 and whole numbers.

    alone  the elements share no error
    """
    total = Rounding()
    for bound, got in zip(bounds, results, strict=False):
        if bound is None or bound.storage is None or got is None:
            continue
        storage = bound.storage
        if storage.precision > WIDEST or got.dtype.name != storage.name:
            continue
        every = max(1, bound.value.size // MOST)
        value, bar, result = (
            np.broadcast_to(x, bound.value.shape).reshape(-1)[::every].astype(np.float64)
            for x in (bound.value, bound.bar, got)
        )
        limits = storage.precision, storage.smallest_normal, storage.largest
        value, above, step = between(value, bar, result, *limits)
        neighbour = (step == 0) | (step == 1)
        off = (step - above)[neighbour]
        total += Rounding(
            off.size,
            int(np.count_nonzero(np.abs(off) < 0.5)),
            float(off.sum()),
            {
                name: _counted(value[near], against, went, alone=alone)
                for name, near, against, went in ways(value, above, step)
            },
        )
    return total


def between(
    value: Any, bar: Any, got: Any, precision: int, smallest: float, largest: float
) -> tuple[Any, Any, Any]:
    """Of the exact values that lie between two numbers of a format: the values themselves, how
    far each is from the one nearer to zero, and where the result is (0: there, 1: at the other).

    In units of the spacing. Values next to the ends of the range tell nothing.
    """
    size = np.abs(value)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(size)
        spacing = np.ldexp(1.0, exponent - precision)
        inside = (size > 2 * smallest) & (size < largest / 2) & np.isfinite(got)
        inside &= bar < KNOWN * spacing
    value, size, spacing, got = (x[inside] for x in (value, size, spacing, got))
    lower = np.floor(size / spacing)
    above = size / spacing - lower
    step = np.sign(value) * got / spacing - lower
    inside = (above > ON) & (above < 1 - ON)
    return value[inside], above[inside], step[inside]


def ways(value: Any, above: Any, step: Any) -> Any:
    """For each direction: its name, which elements are near a number of the format, and of these
    whether rounding to nearest takes the other way and whether the result went this way.
    """
    near = (above < NEAR) | (above > 1 - NEAR)
    outward = above[near] > 0.5
    for name in DIRECTIONS:
        target = {
            "toward zero": np.zeros(outward.shape, bool),
            "away from zero": np.ones(outward.shape, bool),
            "down": value[near] < 0,
            "up": value[near] > 0,
        }[name]
        yield name, near, outward != target, step[near] == target


def _counted(
    value: NDArray[Any], against: NDArray[Any], went: NDArray[Any], *, alone: bool
) -> Way:
    """The counts of a case, of a few elements with different values."""
    most = OF_CASE_ALONE if alone else OF_CASE

    def few(chosen: NDArray[Any]) -> tuple[int, int]:
        _, places = np.unique(value[chosen], return_index=True)
        places = places[:: max(1, len(places) // most)][:most]
        return len(places), int(np.count_nonzero(went[chosen][places]))

    others, rest = few(against), few(~against)
    seen, pairs = int(np.count_nonzero(against)), min(others[0], rest[0])
    return Way(*others, *rest, seen, pairs if alone else min(pairs, 1))
