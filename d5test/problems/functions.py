"""The inputs on which elementary functions are measured: fixed cases, slice by slice.

A slice is 2048 inputs. Of a 16-bit dtype 32 slices are all its numbers. Of a wider one they hold
an input for each value of the leading 16 bits, so some for each sign and exponent, twice: with
random bits below and with zeros (powers of two, zero and infinity are among these); further slices
are the neighbours of each input at which the result becomes another kind of number: zeros, poles,
overflow, underflow. Slices keep a known failure in one range from hiding others elsewhere.

Of functions of two inputs a slice is 2048 pairs. 32 of them are a grid, in which each leading byte
of the one input meets each of the other, with random bits below; further slices are strata in
which results are neither too large nor too small, or nearly so. One slice has all pairs of the
numbers for which standards have rules, over and over.
"""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from d5test.case import Array, Case, Operator, Tensor, dtype_of
from d5test.reference.operators import elementwise as ops
from d5test.reference.operators.elementwise import Pow
from d5test.reference.stable import stable
from d5test.values import finfo, numbers, ordinals, special_numbers

SLICE = 2048
LONG_SLICE = 8 * SLICE
"""Of gradients, in which less is known to be wrong."""
THRESHOLDS = 32
"""Of a function that oscillates those next to zero are taken: a sine has one at each multiple of
pi, and the inputs of the slices are too far from each other to bracket those of large ones."""
PATTERNS = 2**16
OCTETS = 256
Regime = tuple[str | int | float, ...]
Stratum = tuple[Regime, Regime]
ARITHMETIC: tuple[Stratum, ...] = (
    (("normal",), ("normal",)),
    (("huge",), ("nonzero",)),
    (("tiny",), ("heavy",)),
)
"""Strata of all functions of two inputs but powers."""

VARIANTS: Mapping[type[Operator], tuple[Operator, ...]] = {
    ops.Gelu: (ops.Gelu(), ops.Gelu(approximate="tanh")),
    ops.HardSigmoid: (ops.HardSigmoid(), ops.HardSigmoid(alpha=ops.SIXTH)),
}
"""Operators whose attributes choose another function; the others are judged with the defaults."""


def function_cases(operator: type[Operator], dtype: str) -> tuple[Case, ...]:
    """The cases of an elementwise operator of one or two inputs in `dtype`."""
    if not issubclass(operator, ops.Unary):
        return tuple(_pairs(operator(), dtype))
    variants = VARIANTS.get(operator, (operator(),))
    return tuple(case for op in variants for case in _single(op, dtype))


def slope_cases(operator: type[Operator], dtype: str) -> tuple[Case, ...]:
    """The cases of the gradient of an elementwise operator of one input in `dtype`."""
    variants = VARIANTS.get(operator, (operator(),))
    return tuple(case for op in variants for case in _single(op, dtype, LONG_SLICE))


def _single(op: Operator, dtype: str, length: int = SLICE) -> Iterator[Case]:
    wide = dtype_of(dtype).itemsize > 2
    for below in (("random",), ("zeros",)) if wide else ((),):
        for first in range(0, PATTERNS, length):
            recipe = Tensor((length,), dtype, ("every", first, *below))
            yield Case(op, (recipe,), seed=first if "random" in below else 0)
    if wide:
        for x in thresholds(op, dtype):
            yield Case(op, (Tensor((SLICE,), dtype, ("near", x)),))


@cache
def thresholds(op: Operator, dtype: str) -> tuple[float, ...]:
    """The inputs before which the result is another kind of number: found by bisection."""
    number = dtype_of(dtype)
    (end,) = ordinals(np.array([np.inf], number))
    step = 1 << (8 * number.itemsize - 16)
    positive = np.arange(0, end, step, dtype=np.int64)
    places = np.concatenate((-1 - positive[::-1], positive))

    def kind(at: NDArray[np.int64]) -> Array:
        x = numbers(at, number).astype(np.float64)
        with np.errstate(all="ignore"):
            return kinds(stable(op, x).astype(number))

    every = kind(places)
    changes = np.flatnonzero(every[1:] != every[:-1])
    nearest = np.argsort(np.abs(changes - positive.size), kind="stable")[:THRESHOLDS]
    changes = np.sort(changes[nearest])
    below, above, before = places[changes], places[changes + 1], every[changes]
    while np.any(above - below > 1):
        middle = below + (above - below) // 2
        same = kind(middle) == before
        below, above = np.where(same, middle, below), np.where(same, above, middle)
    return tuple(float(x) for x in numbers(above, number))


def kinds(values: Array) -> NDArray[np.int64]:
    """0 for zero, 1 subnormal, 2 normal, 3 infinite, negative for negative numbers; 4 for NaN."""
    format_ = finfo(values.dtype)
    starts = [format_.smallest_subnormal, format_.smallest_normal, np.inf]
    grown = np.searchsorted(np.array(starts, values.dtype), np.abs(values), side="right")
    return np.where(np.isnan(values), 4, np.where(np.signbit(values), -grown, grown))


def _pairs(op: Operator, dtype: str) -> Iterator[Case]:
    for first in range(0, OCTETS**2, SLICE):
        yield _pair(op, dtype, (("octets", first, OCTETS), ("octets",)), first)
    for stratum in powers(dtype) if isinstance(op, Pow) else ARITHMETIC:
        yield _pair(op, dtype, stratum)
    count = special_numbers(dtype_of(dtype)).size
    yield _pair(op, dtype, (("special", count), ("special",)))


def _pair(op: Operator, dtype: str, stratum: Stratum, seed: int = 0) -> Case:
    return Case(op, tuple(Tensor((SLICE,), dtype, values) for values in stratum), seed)


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
