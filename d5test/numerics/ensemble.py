"""Judging compositions: by the spread of noisy references, where a bar would grow without bound.

A recurrence over more than a few steps is run eight times with one rounding error per primitive.
Its spread, element by element, is how far honest arithmetic strays; a result further away than
`BY_ELEMENT` times that, or by norm than `BY_NORM` times, is wrong. The variance of an element is
known from eight runs only, so it is averaged with the whole result's: then a normal error reaches
16 spreads of its element with a probability below 10^-25.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from d5test.case import Operator
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Array, Bound, Bounds, lifted_results
from d5test.numerics.judgement import pairs
from d5test.numerics.perturbed import Perturbed, deviates
from d5test.numerics.tracked import Tracked

MEMBERS, BY_ELEMENT, BY_NORM = 8, 16.0, 8.0


class Spread:
    """How far the members of an ensemble stray from a value, taken in one after the other."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)
        self._squares: list[Any] = [0.0, 0.0]
        self._members = 0

    def add(self, member: Any) -> None:
        """One more member's value."""
        if self.value.dtype.kind == "f":
            with np.errstate(all="ignore"):
                plain = member.value if isinstance(member, Tracked) else member
                deviation = np.where(plain == self.value, 0.0, plain - self.value)
                kind = self._members % 2
                self._squares[kind] = self._squares[kind] + deviation * deviation
        self._members += 1

    @property
    def deviation(self) -> Array:
        """The standard deviation of each element: its own and the whole's variance, averaged.

        Of the two kinds of members (see `deviates`), that which strays further.
        """
        counts = (max((self._members + 1) // 2, 1), max(self._members // 2, 1))
        variance = np.maximum(*(s / n for s, n in zip(self._squares, counts, strict=True)))
        mean = np.mean(variance) if variance.size else 0.0
        deviation: Array = np.sqrt((variance + mean) / 2)
        return deviation

    def bound(self, arithmetic: Arithmetic) -> Bound:
        """The bar of each element."""
        if self.value.dtype.kind != "f":
            return Bound(self.value, np.zeros(self.value.shape), None)
        size, output = np.abs(self.value), arithmetic.output
        bar = BY_ELEMENT * self.deviation + size * output.error + output.eta
        bar += np.minimum(size + bar, output.flushed)
        bar = np.where(np.isinf(size), BY_ELEMENT * self.deviation, bar)
        return Bound(self.value, bar, arithmetic.storage)


def noise(arithmetic: Arithmetic, seed: int) -> Callable[[Array], Perturbed]:
    """What turns the float64 arrays of one member into noisy ones; the seed is its number."""
    u = arithmetic.primitive.u

    def perturb(value: Array, size: Array) -> Array:
        size = np.maximum(np.abs(value), size)
        noisy: Array = value + u * deviates(value, size, seed) * size
        return np.where(np.isinf(value), value, noisy)  # rounding leaves an infinity alone

    return partial(Perturbed, perturb=perturb)


def ensemble_bounds(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any] | None, arithmetic: Arithmetic
) -> Bounds:
    """Bars from the spread of the outputs, or with `grads` of the gradients."""
    results = lifted_results(op, arrays, grads, lambda x: x)
    spreads = [None if y is None else Spread(y) for y in results]
    for i in range(MEMBERS):
        member = lifted_results(op, arrays, grads, noise(arithmetic, i))
        for spread, y in zip(spreads, member, strict=True):
            if spread is not None:
                spread.add(y)
    return tuple(None if spread is None else spread.bound(arithmetic) for spread in spreads)


def norm_ratio(bounds: Bounds, results: Sequence[Array | None]) -> float:
    """The worst ratio of a result's error and its allowed error, by Euclidean norm."""
    worst = 0.0
    for _, bound, got in pairs(bounds, results):
        if bound.storage is None or not bound.value.size:
            continue
        finite = np.isfinite(bound.value)  # an infinity is judged by element
        allowed = float(np.linalg.norm(bound.bar[finite])) * BY_NORM / BY_ELEMENT
        difference = np.asarray(got).astype(np.float64)[finite] - bound.value[finite]
        error = float(np.linalg.norm(difference))
        worst = max(worst, 0.0 if error == 0 else error / allowed)
    return worst
