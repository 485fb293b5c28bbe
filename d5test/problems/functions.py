"""All that the accuracy of an elementary function is judged on: fixed cases, slice by slice.

Functions of two inputs have theirs in `pairs`. A slice is 2048 inputs. Of a 16-bit dtype 32 slices
are all its numbers. Of a wider one they hold an input for each value of the leading 16 bits, so
some for each sign and exponent, twice: with random bits below and with zeros (powers of two, zero
and infinity are among these); further slices are the neighbours of each input at which the result
becomes another kind of number: zeros, poles, overflow, underflow. Slices keep a known failure in
one range from hiding others elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from d5test.case import Array, Case, Operator, Tensor, dtype_of
from d5test.ordinals import numbers, ordinals
from d5test.problems.pairs import pair_cases
from d5test.reference.operators import activations as bent
from d5test.reference.operators import elementwise as ops
from d5test.reference.stable import stable
from d5test.values import finfo

SLICE = 2048
PATTERNS = 2**16

VARIANTS: Mapping[type[Operator], tuple[Operator, ...]] = MappingProxyType(
    {
        ops.Gelu: (ops.Gelu(), ops.Gelu(approximate="tanh")),
        bent.HardSigmoid: (bent.HardSigmoid(), bent.HardSigmoid(alpha=bent.SIXTH)),
    }
)
"""Operators whose attributes choose another function; the others are judged with the defaults."""


def function_cases(operator: type[Operator], dtype: str) -> tuple[Case, ...]:
    """The cases of an elementwise operator of one or two inputs in `dtype`."""
    if not issubclass(operator, ops.Unary):
        return tuple(pair_cases(operator(), dtype))
    variants = VARIANTS.get(operator, (operator(),))
    return tuple(case for op in variants for case in _cases(op, dtype))


def _cases(op: Operator, dtype: str) -> Iterator[Case]:
    wide = dtype_of(dtype).itemsize > 2
    for below in (("random",), ("zeros",)) if wide else ((),):
        for first in range(0, PATTERNS, SLICE):
            recipe = Tensor((SLICE,), dtype, ("every", first, *below))
            yield Case(op, (recipe,), seed=first if "random" in below else 0)
    if wide:
        for x in thresholds(op, dtype):
            yield Case(op, (Tensor((SLICE,), dtype, ("near", x)),))


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

    found = kind(places)
    changes = np.flatnonzero(found[1:] != found[:-1])
    below, above, before = places[changes], places[changes + 1], found[changes]
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
