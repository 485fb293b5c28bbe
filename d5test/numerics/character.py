"""How bad a wrong result is: the bits that are right, and whether any arithmetic explains it.

An inaccuracy is what honest arithmetic of fewer bits would give: the bars of that arithmetic hold
the result, and still reject whatever needs no arithmetic at all (see `controls`). A different
function is what no such arithmetic explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor, isfinite, log2

import numpy as np
from numpy.typing import NDArray

from d5test.numerics.arithmetic import NEXT_LOWER, Arithmetic
from d5test.numerics.bounds import Array, Bound, Bounds
from d5test.numerics.controls import rejects, trivial
from d5test.numerics.judgement import judge, ratios

COARSEST = 8
"""Bits of bfloat16, the coarsest format in which frameworks compute what they store in another."""


def bits_right(got: float, want: float, precision: int) -> int:
    """How many leading bits of a significand of `precision` bits are right.

    None are of zero, infinity and NaN, where one is wanted and another one is there.
    """
    if got == want:
        return precision
    if want == 0 or not isfinite(want) or not isfinite(got):
        return 0
    error = abs(got / want - 1)
    if error == 0:
        return precision
    return min(max(floor(-log2(error)), 0), precision) if error < 1 else 0


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
        wider = bounds(arithmetic.of_precision(precision))
        return wider if judge(wider, results).right else None

    storage = arithmetic.storage
    low, high = min(COARSEST, NEXT_LOWER[storage.name]), storage.precision
    best = holding(low)
    if best is None:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        wider = holding(middle)
        low, high, best = (low, middle, best) if wider is None else (middle, high, wider)
    if any(np.any(wrong & ~b.judged) for wrong, b in _wrong(exact, best, results)):
        return None
    return low if all(rejects(best, wrong) for wrong in nonsense) else 0


def _wrong(
    exact: Bounds, wider: Bounds, results: Sequence[Array | None]
) -> Iterator[tuple[NDArray[np.bool_], Bound]]:
    """Which elements of each result lie outside of the bars of `exact`, with the wider bars."""
    for bound, other, got in zip(exact, wider, results, strict=False):
        if bound is not None and other is not None and got is not None:
            yield ratios(bound, got) > 1, other
