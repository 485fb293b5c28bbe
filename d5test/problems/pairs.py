"""All that the accuracy of a function of two inputs is judged on: fixed pairs, slice by slice.

A slice is 2048 pairs. 32 of them are a grid, in which each leading byte of the one input meets
each of the other, with random bits below; further slices are strata in which results are neither
too large nor too small, or nearly so. One slice has all pairs of the numbers for which standards
have rules, over and over.
"""

from __future__ import annotations

from collections.abc import Iterator

from d5test.case import Case, Operator, Tensor, dtype_of
from d5test.reference.operators.arithmetic import Pow
from d5test.values import finfo, special_numbers

SLICE = 2048
OCTETS = 256

Regime = tuple[str | int | float, ...]
Stratum = tuple[Regime, Regime]

ARITHMETIC: tuple[Stratum, ...] = (
    (("normal",), ("normal",)),
    (("huge",), ("nonzero",)),
    (("tiny",), ("heavy",)),
)


def pair_cases(op: Operator, dtype: str) -> Iterator[Case]:
    """The cases of an elementwise operator of two inputs in `dtype`."""
    for first in range(0, OCTETS**2, SLICE):
        yield _case(op, dtype, (("octets", first, OCTETS), ("octets",)), first)
    for stratum in powers(dtype) if isinstance(op, Pow) else ARITHMETIC:
        yield _case(op, dtype, stratum)
    count = special_numbers(dtype_of(dtype)).size
    yield _case(op, dtype, (("special", count), ("special",)))


def powers(dtype: str) -> tuple[Stratum, ...]:
    """Strata of x and y in which |x|^y reaches both ends of the range, and not much further."""
    info = finfo(dtype_of(dtype))
    exponents = int(info.maxexp)
    # of SLICE numbers around 1 the furthest is SLICE / 2 roundings above
    steep = exponents / float(info.eps) / (SLICE / 2)
    return (
        (("positive",), ("uniform", -exponents / 2, exponents / 2)),
        (("near", 1.0), ("uniform", -steep, steep)),
        (("nonzero",), ("within", exponents // 2)),
        (("octets", 0, SLICE // OCTETS), ("ties",)),
    )


def _case(op: Operator, dtype: str, stratum: Stratum, seed: int = 0) -> Case:
    return Case(op, tuple(Tensor((SLICE,), dtype, values) for values in stratum), seed)
