"""References in another precision than float64: with random rounding errors, or rounded for real.

`ensemble.noise` multiplies each primitive's result by 1 + u xi, u larger for those that the table
grants more: an ensemble of such runs spreads as honest arithmetic of unit roundoff u does, in
compositions where a bar would grow without bound. A rounding error is a function of what is
rounded, and so is xi in every other run: equal results have equal errors, which add up where
others cancel (weights that are all one number, images that are all one colour). In the other runs
it is not: a GPU's kernel may sum equal terms in two orders, and its results are equal no longer.
`rounded` rounds each primitive's result to a number of bits: the next lower precision, which a
bar must reject. (NumPy's own float16 sums in float32 and would prove nothing.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from d5test.numerics.chains import Chain
from d5test.numerics.elementary import ADDITIONS, COMPARISONS, LOGIC, TABLE
from d5test.numerics.functions import count
from d5test.numerics.tracked import Tracked, Values

Perturb = Callable[[Values, Values], Values]
"""Of a value and the size to which a rounding error is relative: the value, off by that error."""


class Perturbed(Tracked):
    """An array whose every primitive's result goes through `perturb`."""

    __slots__ = ("perturb",)

    def __init__(
        self, value: Values, companion: Values | None = None, *, perturb: Perturb
    ) -> None:
        super().__init__(value)
        self.perturb = perturb

    def like(self, value: Values, companion: Values | None = None) -> Perturbed:
        return Perturbed(value, perturb=self.perturb)

    def _computed(self, value: Any, size: Values) -> Perturbed:
        value = np.asarray(value)
        return self.like(self.perturb(value, size) if value.dtype.kind == "f" else value)

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        value = ufunc(*(a.value if isinstance(a, Tracked) else a for a in arguments))
        if ufunc in COMPARISONS or ufunc in LOGIC:
            return value
        if ufunc in ADDITIONS and any(isinstance(a, Tracked) and a.chain for a in arguments):
            return self._gone_on(value, [self.lift(a) for a in arguments])
        ulps = TABLE[ufunc].ulps if ufunc in TABLE else 0.0
        if not ulps:
            return self.like(np.asarray(value))
        return self._computed(value, 2 * ulps * np.abs(value))

    def _gone_on(self, value: Any, arguments: Sequence[Tracked]) -> Perturbed:
        """What is added to a sum of products, off by as much more as both in one sum are."""
        one, other = (a.as_chain() for a in arguments)
        whole = one + other
        squares = np.square(walk(value, whole.size, whole.terms))
        for a in arguments:
            if a.chain is not None:
                squares -= np.square(walk(a.value, a.chain.size, a.chain.terms))
        result = self._computed(value, np.sqrt(np.maximum(squares, 0)))
        result.chain = whole
        return result

    def size_of_terms(self) -> Values:
        return np.square(self.value)

    def contract(
        self, function: Callable[..., Any], operands: Sequence[Any], sizes: tuple[int, ...]
    ) -> Any:
        values = [self.lift(x).value for x in operands]
        squares = np.abs(function(*(v * v for v in values)))
        value, terms = function(*values), prod(sizes)
        result = self._computed(value, walk(value, squares, terms))
        result.chain = Chain(terms, lambda: squares) if terms > 1 else None
        return result

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        squares = np.sum(self.value * self.value, axis=axis, keepdims=keepdims)
        value = np.sum(self.value, axis=axis, keepdims=keepdims)
        return self._computed(value, walk(value, squares, count(self.shape, axis)))

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        function = np.max if sign > 0 else np.min
        return self.like(np.asarray(function(self.value, axis=axis, keepdims=keepdims)))

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        a, b = self.lift(chosen), self.lift(other)
        result = self.like(np.where(condition, a.value, b.value))
        result.chain = Chain.where(condition, a, b)
        return result


def walk(total: Values, squares: Values, terms: int | Values) -> Values:
    """The size of a sum to which its rounding error is relative: terms added one after the other.

    Of n terms with the sum S and the sum of squares Q, in any order, k have the sum k S / n on
    average, with a variance of k (n - k) / n times the terms' own. Each partial sum is rounded;
    the squares of these add up to n S^2 / 3 + n (Q - S^2 / n) / 6. For terms of random signs that
    is n Q / 2: torch's convolutions, of 4608 float32 products, were measured at 0.8 of its root.
    For equal terms it is n S^2 / 3.
    """
    n = np.maximum(terms, 1)
    means = total * total
    return np.sqrt(np.maximum(squares, n * means / 3 + (n * squares - means) / 6))


SAME = 40
"""Leading bits in which results that are equal do agree, whatever order float64 summed them in."""
GOLDEN, FIRST, SECOND = (
    np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def deviates(value: Values, size: Values, member: int) -> Values:
    """Numbers between -1 and 1 that look random. An even member's are equal where its values are.

    SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16) of the leading bits of both.
    """
    with np.errstate(over="ignore"):
        bits = leading(value)
        bits *= GOLDEN
        bits += leading(size)
        bits += np.uint64(member + 1) * GOLDEN
        if member % 2:
            bits += np.arange(bits.size, dtype=np.uint64).reshape(bits.shape) * SECOND
        bits ^= bits >> np.uint64(30)
        bits *= FIRST
        bits ^= bits >> np.uint64(27)
        bits *= SECOND
        bits ^= bits >> np.uint64(31)
        xi = (bits >> np.uint64(11)).astype(np.float64)
    xi *= 2.0**-52
    xi -= 1
    return xi


def leading(x: Values) -> Values:
    """The leading bits of each number, rounded; of both zeros they are the same."""
    dropped = 53 - SAME
    bits = (np.asarray(x, np.float64) + 0.0).view(np.uint64)
    bits += np.uint64(1 << (dropped - 1))
    bits >>= np.uint64(dropped)
    return bits


def rounded(value: Values, precision: int) -> Perturbed:
    """`value` and all that is computed of it in `precision` bits, with float64's range."""
    return Perturbed(
        round_to(value, precision), perturb=lambda result, size: round_to(result, precision)
    )


def round_to(value: Values, precision: int) -> Values:
    """`value` rounded to `precision` bits, to nearest and ties to even (Veltkamp's splitting)."""
    if precision == 53:
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = value * (2.0 ** (53 - precision) + 1)
        high = scaled - (scaled - value)
    return np.where(np.isfinite(high), high, value)
