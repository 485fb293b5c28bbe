"""Where arithmetic at an infinity is certain: exactly an infinity or zero, whoever computes it.

An operand that is exactly infinite is no overflow: no rounding, order of terms or underflow
changes what comes of it, so nothing is paid there. e^-inf is 0, inf + x is inf, log 0 is -inf,
1 / inf is 0. What is certain holds for all values that the other operands may have: inf y is,
unless y may be zero or of either sign. Infinity minus infinity is NaN, of which nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.tracked import Values

if TYPE_CHECKING:
    from d5test.numerics.bars import Bar

POLES = {
    np.divide: (1, 0.0),
    np.reciprocal: (0, 0.0),
    np.log: (0, 0.0),
    np.log2: (0, 0.0),
    np.log1p: (0, -1.0),
    np.power: (0, 0.0),
}
"""Functions that are infinite at a finite argument: which argument, and where."""

FUNCTIONS = frozenset(
    {np.add, np.subtract, np.multiply, np.square, np.divide, np.reciprocal, np.sqrt, np.exp,
     np.exp2, np.expm1, np.log, np.log2, np.log1p, np.sinh, np.cosh, np.arcsinh, np.arccosh,
     np.power, np.floor, np.ceil, np.rint, np.trunc, special.expit, special.erfc}
)  # fmt: skip
"""Functions that are monotone in each argument, on either side of zero: the ends of an interval
that does not hold zero tell of all of it."""

PRODUCTS = frozenset({np.multiply, np.square, np.divide})
"""Functions that make zero of a zero, which e^-inf was, and any finite number."""

BEYOND = 1 + 2.0**-50
"""An interval that ends at zero is taken to hold both zeros."""


def certain_at_infinity(
    result: Bar, ufunc: Any, xs: Sequence[Values], bars: Sequence[Values | None]
) -> Bar:
    """The result of an elementwise function, with a bar of zero where an infinity makes it so.

    Not of a gradient, which at an infinity depends on how the derivative is written, but of one of
    a formula that `masks`; nor of a function that is known to err by an absolute amount, which it
    does there too.
    """
    errs = ufunc.__name__ in result.arithmetic.absolute
    in_gradient = result.arithmetic.ties and not result.arithmetic.masks
    if ufunc not in FUNCTIONS or in_gradient or errs:
        return result
    decided = np.zeros(np.shape(result.value), bool)
    for i, (x, bar) in enumerate(zip(xs, bars, strict=True)):
        at = np.isinf(x)
        if ufunc in POLES and POLES[ufunc][0] == i:
            at |= x == POLES[ufunc][1]
        elif ufunc in PRODUCTS:
            at |= x == 0
        decided |= at if bar is None else at & (bar == 0)
    at = decided & (np.isinf(result.value) | (result.value == 0))
    if not at.any():
        return result
    reaches = [_reach(x, bar, result.arithmetic) for x, bar in zip(xs, bars, strict=True)]
    for ends in product((-1, 1), repeat=len(xs)):
        corner = (x + end * reach for end, x, reach in zip(ends, xs, reaches, strict=True))
        at &= ufunc(*corner) == result.value
    exact = result.like(result.value, np.where(at, 0.0, result.full_companion()))
    if result.beyond is not None:
        exact.beyond = np.where(at, 0.0, result.beyond)
    return exact


def certain_sums(x: Bar, axis: Any, keepdims: bool) -> Values:
    """Where a sum is certain: of zeros alone, or with exact infinities, while no partial sum of
    the others overflows.

    A sum of infinities of both signs is NaN, whose bar does not count.
    """
    infinite, others = _parts(x)
    rest = np.asarray(others.sum(axis=axis, keepdims=keepdims))
    some = np.asarray(infinite.sum(axis=axis, keepdims=keepdims)) > 0
    return np.asarray((rest == 0) | some & (rest <= x.arithmetic.primitive.largest))


def certain_products(context: Bar, function: Callable[..., Any], xs: Sequence[Bar]) -> Values:
    """The same of a sum of products: an infinity meets no factor that may be zero or of any sign.

    Nothing is known of products of more than two.
    """
    if len(xs) != 2:
        return np.zeros((), bool)
    (one, other), zeros = map(_parts, xs), [_perhaps_zero(x) for x in xs]
    rest = function(one[1], other[1])
    some = function(one[0], np.ones(xs[1].shape)) + function(np.ones(xs[0].shape), other[0]) > 0
    lost = function(one[0], zeros[1]) + function(zeros[0], other[0]) > 0
    return np.asarray(
        (some & ~lost | (rest == 0)) & (rest <= context.arithmetic.primitive.largest)
    )


def _reach(x: Values, bar: Values | None, arithmetic: Arithmetic) -> Values:
    """How far the values may be from x: below the smallest normal number it may be zero."""
    reach = np.zeros(np.shape(x)) if bar is None else np.where(bar == 0, 0.0, bar * BEYOND)
    if not arithmetic.flushes:
        return reach
    size = np.absolute(x)
    small = (size > 0) & (size < arithmetic.primitive.smallest_normal)
    return np.where(small, np.maximum(reach, size * BEYOND), reach)


def _parts(x: Bar) -> tuple[Values, Values]:
    """1 where an element is exactly infinite, and the largest magnitudes of the others."""
    bar = x.full_companion()
    infinite = np.isinf(x.value) & (bar == 0)
    others = np.where(infinite, 0.0, np.absolute(x.value) + bar)
    return infinite.astype(np.float64), np.where(np.isnan(others), np.inf, others)


def _perhaps_zero(x: Bar) -> Values:
    """1 where an element may be zero or of either sign."""
    return (np.absolute(x.value) <= _reach(x.value, x.companion, x.arithmetic)).astype(np.float64)
