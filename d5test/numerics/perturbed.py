"""References in another precision than float64: with random rounding errors, or rounded for real.

`Noise` multiplies each primitive's result by 1 + u xi, u larger for those that the table grants
more: an ensemble of such runs spreads as honest
arithmetic of unit roundoff u does, in compositions where a bar would grow without bound.
`Rounded` rounds each primitive's result to a number of bits: the next lower precision, which a
bar must reject. (NumPy's own float16 sums in float32 and would prove nothing.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np

from d5test.numerics.elementary import COMPARISONS, LOGIC, TABLE
from d5test.numerics.functions import count
from d5test.numerics.tracked import Tracked, Values


class Perturbed(Tracked):
    """An array whose every primitive goes through `perturb`."""

    __slots__ = ()

    def perturb(self, value: Values, spread: Values) -> Values:
        """`value`, off by a rounding error; `spread` is the size to which it is relative."""
        raise NotImplementedError

    def _made(self, value: Any, spread: Any = None) -> Any:
        value = np.asarray(value)
        if value.dtype.kind != "f":
            return self.like(value)
        return self.like(self.perturb(value, np.abs(value) if spread is None else spread))

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        value = ufunc(*(a.value if isinstance(a, Tracked) else a for a in arguments))
        if ufunc in COMPARISONS or ufunc in LOGIC:
            return value
        ulps = TABLE[ufunc].ulps if ufunc in TABLE else 0.0
        if not ulps:
            return self.like(np.asarray(value))
        return self._made(value, 2 * ulps * np.abs(value))

    def contract(self, function: Callable[..., Any], operands: Sequence[Any], terms: int) -> Any:
        values = [self.lift(x).value for x in operands]
        spread = np.sqrt(np.abs(function(*(v * v for v in values))))
        return self._made(function(*values), walk(terms) * spread)

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        spread = np.sqrt(np.sum(self.value * self.value, axis=axis, keepdims=keepdims))
        spread = walk(count(self.shape, axis)) * spread
        return self._made(np.sum(self.value, axis=axis, keepdims=keepdims), spread)

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        function = np.max if sign > 0 else np.min
        return self.like(np.asarray(function(self.value, axis=axis, keepdims=keepdims)))

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        return self.like(np.where(condition, self.lift(chosen).value, self.lift(other).value))


def walk(terms: int) -> float:
    """How much the rounding errors of a sum exceed that of one of its terms.

    Added one after the other, terms of random signs walk: the partial sum of k is sqrt(k) terms
    large and is rounded, and the squares of these errors add up to terms^2 / 2. Convolutions do
    add so: torch's, of 4608 float32 products, was measured at 0.8 of this.
    """
    return sqrt(max(1.0, terms / 2))


class Noise(Perturbed):
    """A member of an ensemble: `u` the unit roundoff, `random` its own generator."""

    __slots__ = ("random", "u")

    def __init__(
        self,
        value: Values,
        companion: Values | None = None,
        *,
        u: float,
        random: np.random.Generator,
    ) -> None:
        super().__init__(value)
        self.u = u
        self.random = random

    def like(self, value: Values, companion: Values | None = None) -> Noise:
        return Noise(value, u=self.u, random=self.random)

    def perturb(self, value: Values, spread: Values) -> Values:
        xi = 2 * self.random.random(np.shape(value)) - 1
        return value + self.u * xi * np.maximum(np.abs(value), spread)


class Rounded(Perturbed):
    """Values of `precision` bits, with float64's range."""

    __slots__ = ("precision",)

    def __init__(self, value: Values, companion: Values | None = None, *, precision: int) -> None:
        super().__init__(value)
        self.precision = precision

    def like(self, value: Values, companion: Values | None = None) -> Rounded:
        return Rounded(value, precision=self.precision)

    def perturb(self, value: Values, spread: Values) -> Values:
        return round_to(value, self.precision)


def round_to(value: Values, precision: int) -> Values:
    """`value` rounded to `precision` bits, to nearest and ties to even (Veltkamp's splitting)."""
    if precision == 53:
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = value * (2.0 ** (53 - precision) + 1)
        high = scaled - (scaled - value)
    return np.where(np.isfinite(high), high, value)
