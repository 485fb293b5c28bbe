"""What a wrong result is, as far as its numbers say.

It is an inaccuracy if it is what honest arithmetic of fewer bits would give: the bars of that
arithmetic hold it, and still reject whatever needs no arithmetic at all. A different function is
what no such arithmetic explains. Where all results are numbers of a narrower format, or those that
are due in another order, that is said instead, if it is no chance.
"""

from collections.abc import Callable, Sequence
from math import floor, isfinite, log2

import numpy as np
from numpy.typing import NDArray

from d5test.numerics.arithmetic import NARROWER, NEXT_LOWER, Arithmetic, format_of
from d5test.numerics.bounds import Array, Bound, Bounds
from d5test.numerics.judgement import Judgement, judge, pairs, ratios, rejects, trivial

COARSEST = 8
"""Bits of bfloat16, the coarsest format in which frameworks compute what they store in another."""
NEAR_ONE = 4.0
"""ULPs of 1 that a difference of two numbers near 1 may be off by."""
FINEST = 64.0
"""The least such error is an ULP of 1 divided by this: half a spacing, times what is small."""
MODEST = 0.25
"""The largest magnitude of an array whose results are compared with 1, at least."""
SEVERAL = 16
"""Results of which something may be said that holds for most."""
OFF = 4
"""The most bits of a floating-point format that integers lose when they are computed in it."""
CERTAIN = 12
"""Bits: what is said of a format is chance once in 2^12 times at most, else it is not said."""


def may_cancel(judgement: Judgement, ulp: float, arrays: Sequence[Array | None]) -> bool:
    """Whether a difference of numbers near 1 may make an error, of a result of `arrays`.

    `ulp` is that of 1. Sigmoid(-18) as (1 + tanh(-9)) / 2 is of this kind: the formula is right,
    and no digit is. What multiplies the difference, as x does in the derivative of x tanh(x),
    multiplies its error. Where all is small, nothing says that 1 is met on the way; and a
    difference of numbers near 1 is none that is much smaller than their spacing.
    """
    error, place = abs(judgement.got - judgement.want), judgement.position
    floats = [x for x in arrays if x is not None and x.size and np.asarray(x).dtype.kind in "fV"]
    there = [abs(float(x[place])) for x in floats if len(place) == x.ndim and inside(place, x)]
    most = NEAR_ONE * ulp * max([1.0, *filter(isfinite, there)])
    if not ulp / FINEST <= error <= most or abs(judgement.want) >= 1:
        return False
    with np.errstate(all="ignore"):
        return all(np.max(np.abs(x.astype(np.float64))) >= MODEST for x in floats)


def inside(place: tuple[int, ...], x: Array) -> bool:
    """Whether an array has an element there."""
    return all(i < n for i, n in zip(place, x.shape, strict=True))


def is_usual(judgement: Judgement, bounds: Bounds, results: Sequence[Array | None]) -> bool:
    """Whether such an error is usual where it would show: in results much smaller than it.

    A difference of numbers near 1 loses them all. Where there are but a few of them, it may be.
    """
    error, small, wrong = abs(judgement.got - judgement.want), 0, 0
    for _, bound, got in pairs(bounds, results):
        shows = bound.judged & (np.abs(bound.value.astype(np.float64)) < MODEST * error)
        small += int(np.count_nonzero(shows))
        wrong += int(np.count_nonzero(ratios(bound, got)[shows] > 1))
    return small < SEVERAL or 2 * wrong > small


def bits_right(got: float, want: float, precision: int) -> int:
    """How many leading bits of a significand of `precision` bits are right.

    None are of zero, infinity and NaN, where one is wanted and another one is there.
    """
    if got == want:
        return precision
    if want == 0 or not isfinite(want) or not isfinite(got):
        return 0
    error = abs(got - want) / abs(want)
    if error == 0:
        return precision
    return min(max(floor(-log2(error)), 0), precision) if error < 1 else 0


def significant_bits(x: Array) -> NDArray[np.int64]:
    """The bits of each number, from the first to the last that is not zero."""
    if x.dtype.kind in "iu":  # a float has 53 of them
        whole = [abs(int(number)) for number in x.flat]
        bits = [(number // max(number & -number, 1)).bit_length() for number in whole]
        return np.array(bits, np.int64).reshape(x.shape)
    significand = np.frexp(np.asarray(x).astype(np.float64))[0]
    scaled = np.abs(np.ldexp(significand, 53)).astype(np.int64)
    trailing = np.log2((scaled & -scaled).clip(1)).astype(np.int64)
    return np.where(scaled == 0, 0, 53 - trailing)


def rounded_to(bounds: Bounds, results: Sequence[Array | None]) -> str:
    """A narrower format whose numbers all results are, if that is no chance; else empty.

    What takes p bits takes at most n of them by chance once in 2^(p - n) times. Integers may have
    been computed in any floating-point format; they are near what is due then.
    """
    taken, wanted, whole = [0], [], list[tuple[int, int]]()
    for _, bound, got in pairs(bounds, results):
        if bound.storage is not None:
            finite = np.isfinite(np.asarray(got).astype(np.float64)) & np.isfinite(bound.value)
            normal = finite & (np.abs(bound.value) >= bound.storage.smallest_normal)
            wanted += significant_bits(bound.value[normal].astype(got.dtype)).tolist()
            taken += significant_bits(got[finite]).tolist()
        elif got.dtype.kind in "iu" and bound.value.dtype.kind in "iu":
            due, there = bound.value[bound.judged], got[bound.judged]
            wanted += significant_bits(due).tolist()
            taken += significant_bits(there).tolist()
            whole += [*zip(due.tolist(), there.tolist(), strict=True)]
    formats = {**NARROWER, format_of("float64").precision: "float64"} if whole else NARROWER
    for bits, name in formats.items():
        near = all(abs(due - there) << (bits - OFF) <= abs(due) for due, there in whole)
        if near and max(taken) <= bits and sum(max(p - bits, 0) for p in wanted) >= CERTAIN:
            return name
    return ""


def reordered(bound: Bound, got: Array) -> bool:
    """Whether a result has the numbers that are due, in another order, if that is no chance.

    The misplaced numbers must carry `CERTAIN` bits: a truth value may be anywhere.
    """
    wrong = ratios(bound, got) > 1
    order, bars = np.argsort(bound.exact, axis=None), np.broadcast_to(bound.bar, got.shape)
    sorted_ones = Bound(bound.value.flat[order], bars.ravel()[order], bound.storage)
    if not bound.all_judged or np.any(ratios(sorted_ones, np.sort(got, axis=None)) > 1):
        return False
    numbers, first = np.unique(bound.value[wrong], return_index=True)
    with np.errstate(all="ignore"):
        known = np.log2(np.abs(bound.exact[wrong][first]) / bars[wrong][first])
    bits = np.minimum(np.nan_to_num(known.clip(0), nan=0.0), significant_bits(numbers))
    return len(numbers) > 1 and bool(bits.sum() >= CERTAIN)


def no_chance(right: Bounds, other: Bounds, results: Sequence[Array | None]) -> bool:
    """Whether it is no chance that results which are not `right` lie within `other` bars.

    By chance one would once in as many times as its error is larger than that bar: one that may
    only be true or false, once in two.
    """
    bits = 0.0
    for bound, held, got in zip(right, other, results, strict=False):
        if bound is None or held is None or got is None:
            continue
        result, want = np.asarray(got).astype(np.float64), bound.value.astype(np.float64)
        wrong = (ratios(bound, got) > 1) & np.isfinite(result) & np.isfinite(want)
        half = 0.5 if bound.storage is None else bound.storage.u * np.abs(result[wrong])
        with np.errstate(all="ignore"):
            times = np.abs(result - want)[wrong] / np.maximum(held.bar[wrong], half)
        bits += float(np.sum(np.log2(np.maximum(times, 1))))
    return bits >= CERTAIN


def explaining_precision(
    bounds: Callable[[Arithmetic], Bounds],
    arithmetic: Arithmetic,
    results: Sequence[Array | None],
    arrays: Sequence[Array | None],
) -> int | None:
    """The most bits of an arithmetic whose bars hold `results`; those of `arithmetic` do not.

    0 if there is no such arithmetic; `None` if none can tell, since its bars have no end where the
    result is wrong, or those of `arithmetic` reject nothing.
    """
    exact = bounds(arithmetic)
    nonsense = [wrong for wrong in trivial(exact, arrays) if rejects(exact, wrong)]
    if not nonsense:
        return None

    def holding(precision: int) -> Bounds | None:
        coarser = bounds(arithmetic.of_precision(precision))
        return coarser if judge(coarser, results).right else None

    storage = arithmetic.storage
    low, high = min(COARSEST, NEXT_LOWER[storage.name]), storage.precision
    best = holding(low)
    if best is None:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        finer = holding(middle)
        low, high, best = (low, middle, best) if finer is None else (middle, high, finer)
    for k, bound, got in pairs(exact, results):
        wider = best[k]
        if wider is not None and np.any((ratios(bound, got) > 1) & ~wider.judged):
            return None
    return low if all(rejects(best, wrong) for wrong in nonsense) else 0
