"""The errors of a function in ULPs.

One ULP is the spacing of the format's numbers at the exact value (Muller et al., Handbook of
Floating-Point Arithmetic, 2018, section 2.3.2), at least the smallest subnormal number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from d5test.accuracy import Accuracy, Grade
from d5test.case import dtype_of
from d5test.numerics.arithmetic import DOUBLE_ROUNDOFF, Arithmetic, Format
from d5test.numerics.bounds import Array
from d5test.numerics.elementary import ROUNDED
from d5test.numerics.judgement import Judgement

DOUBLE = 53
"""Precision at which the reference is no finer than what it measures."""


@dataclass(frozen=True)
class Measured(Judgement):
    """A judgement, right or wrong, with the errors in ULPs, and the grade if there is one."""

    accuracy: Accuracy = field(default_factory=Accuracy)
    grade: Grade | None = None


def spacing(values: Array, fmt: Format) -> NDArray[np.float64]:
    """One ULP of `fmt` at each of `values`, which are finite."""
    _, exponents = np.frexp(np.abs(values))
    ulp: NDArray[np.float64] = np.ldexp(1.0, exponents - fmt.precision)
    return np.where(values == 0, fmt.smallest_subnormal, np.maximum(ulp, fmt.smallest_subnormal))


def accuracy(
    xs: Sequence[Array], got: Array, exact: Array, off: Array, arithmetic: Arithmetic
) -> Accuracy:
    """The errors of results `got` on inputs `xs`, where `exact` are the values in float64.

    What those may be `off` themselves, in ULPs of float64, is taken from each error: nothing to
    speak of below float64, and there what is left is certain. Counted are the inputs that have a
    value; where the backend flushes, those that are normal numbers and whose values are, by more
    than a rounding. An infinity counts as the largest number: it is the judgement that demands or
    forbids it.
    """
    fmt = arithmetic.storage
    told = fmt.precision < DOUBLE or bool(np.all(off <= ROUNDED))
    with np.errstate(all="ignore"):
        given = got.astype(np.float64)
        nearest = exact.astype(dtype_of(fmt.name)).astype(np.float64)
        counted = ~np.isnan(exact)
        if arithmetic.flushes:
            for values in (*xs, exact):
                counted &= ~subnormal(values, fmt)
            counted &= np.abs(nearest) != fmt.smallest_normal
        y = np.clip(exact, -fmt.largest, fmt.largest)
        own = off * 2 * DOUBLE_ROUNDOFF * np.abs(y)
        error = np.abs(np.clip(given, -fmt.largest, fmt.largest) - y) - own
    given, exact, nearest, y, error = (a[counted] for a in (given, exact, nearest, y, error))
    if not error.size:
        return Accuracy(rounded=0 if told else None)
    with np.errstate(over="ignore"):
        ulps = np.where(np.isnan(given), inf, np.maximum(error, 0.0) / spacing(y, fmt))
        total = float(ulps[np.isfinite(ulps)].sum())
    i = int(ulps.argmax())
    return Accuracy(
        int(ulps.size),
        float(ulps[i]), tuple(float(x[counted][i]) for x in xs), float(given[i]), float(exact[i]),
        total,
        int(np.count_nonzero(given == nearest)) if told else None,
    )  # fmt: skip


def subnormal(values: Array, fmt: Format) -> NDArray[np.bool_]:
    """Which values are below the smallest normal number, but zero."""
    sizes = np.abs(values)
    return np.asarray((sizes > 0) & (sizes < fmt.smallest_normal))
