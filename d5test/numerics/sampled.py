"""References whose bars are a spread: of runs with a rounding error at each primitive.

A framework's own function is no NumPy, so it carries no bars. It runs in float64 instead, once as
it is and again with errors (Monte Carlo arithmetic), in pairs whose errors are opposite: whatever
bends on the way, as a Relu does, is then met from both sides. The errors are `AMPLIFIED`, so that
a bend is met which honest arithmetic may reach; deviations are divided by that again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from d5test.case import Array, Operator
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bound, Bounds, double, map_floats
from d5test.numerics.ensemble import BY_ELEMENT
from d5test.numerics.perturbed import deviates, round_to

PAIRS, IN_16_BITS = 6, 8
"""Runs with errors and their opposites. Of few bits an element is near a bend more often."""
AMPLIFIED = 4.0
"""By how much errors are larger than those of the arithmetic. Of an element two deviations from
a bend, six pairs of normal errors miss it once in 300 times, eight once in 2,000."""
NARROWED = float(np.sqrt(4 / 7))
"""The magnitude of a deviate lies between half of this and this, so that its variance is that of
one between -1 and 1: of a few small ones, an element's spread would be too small by chance."""

Error = Callable[[Array, Array, "Array | None"], Array]
"""Of a primitive's result, the size to which its own rounding is relative, and that of its sum, if
it is one: the result, off by such an error."""

NO_MORE: Mapping[str, float] = MappingProxyType({})


class Sampled(Operator):
    """An operator that runs with errors of one's choice at its primitives, and so has a spread."""

    def run(
        self,
        inputs: Sequence[Any],
        grads: Sequence[Any] | None,
        error: Error | None,
        ulps: Mapping[str, float] = NO_MORE,
    ) -> tuple[Array | None, ...]:
        """The outputs in float64, or with upstream gradients the gradients; exact or with errors.

        `ulps` are elementary functions, by NumPy's names, that are granted more than usual.
        Integers stay what they are. Raises whatever the function raises.
        """
        raise NotImplementedError

    def forward(self, *inputs: Any) -> Any:
        """The outputs in float64."""
        return self.run(double(inputs), None, None)

    def backward(self, grads: Any, inputs: Any, outputs: Any) -> Any:
        """The gradients, as the framework differentiates in float64."""
        return self.run(double(inputs), double(grads), None)

    def bounds(
        self, arrays: Sequence[Any], grads: Sequence[Any] | None, arithmetic: Arithmetic
    ) -> Bounds:
        """See `Operator.bounds`."""
        arrays, grads = double(arrays), None if grads is None else double(grads)
        exact = self.run(arrays, grads, None)
        pairs = PAIRS if arithmetic.storage.precision >= 24 else IN_16_BITS
        spreads = [None if y is None else _Spread(y) for y in exact]
        for k in range(pairs):
            for sign in (AMPLIFIED, -AMPLIFIED):
                wrong = partial(off, arithmetic, k, sign)
                member = self.run(arrays, grads, wrong, arithmetic.ulps)
                for spread, y in zip(spreads, member, strict=True):
                    if spread is not None:
                        spread.add(y)
        return tuple(None if s is None else s.bound(arithmetic) for s in spreads)

    def lowered(
        self, arrays: Sequence[Any], grads: Sequence[Any] | None, bits: int
    ) -> tuple[Array | None, ...]:
        """See `Operator.lowered`."""

        def to_bits(value: Array, *_: Any) -> Array:
            rounded: Array = round_to(value, bits)
            return rounded

        def lowered(arrays: Sequence[Any]) -> tuple[Any, ...]:
            return map_floats(double(arrays), to_bits)

        return self.run(lowered(arrays), None if grads is None else lowered(grads), to_bits)


def off(
    arithmetic: Arithmetic, member: int, factor: float, value: Array, size: Array,
    summed: Array | None,
) -> Array:  # fmt: skip
    """A result with an error: of a primitive, and of a sum that may run in a wider format.

    It is a function of `value` and `size`, and of the number of the member.
    """
    with np.errstate(all="ignore"):
        error = arithmetic.primitive.u * size
        if summed is not None:
            wider = arithmetic.sums.precision > arithmetic.primitive.precision
            error = arithmetic.sums.u * np.maximum(size, summed) + wider * error
        xi = deviates(value, size, member)
        xi += np.copysign(1.0, xi)
        erring: Array = value + (factor * NARROWED / 2) * xi * error
        return np.where(np.isfinite(erring), erring, value)


class _Spread:
    """How far the members are from a value: in the mean square, and at most."""

    def __init__(self, value: Array) -> None:
        self.value = value
        self._squares: Any = 0.0
        self._most: Any = 0.0
        self._members = 0

    def add(self, member: Any) -> None:
        self._members += 1
        with np.errstate(all="ignore"):
            if self.value.dtype.kind == "f":
                distance = np.where(member == self.value, 0.0, np.abs(member - self.value))
                self._squares = self._squares + distance * distance
            else:
                distance = np.where(member == self.value, 0.0, np.inf)
            self._most = np.maximum(self._most, distance)

    def bound(self, arithmetic: Arithmetic) -> Bound:
        """The bar of each element; none for one that is infinite or NaN in a member alone."""
        if self.value.dtype.kind != "f":
            return Bound(self.value, np.broadcast_to(self._most, self.value.shape), None)
        size, output = np.abs(self.value), arithmetic.output
        with np.errstate(all="ignore"):
            variance = self._squares / (self._members * AMPLIFIED**2)
            known = (
                variance[np.isfinite(variance)] if np.ndim(variance) else np.atleast_1d(variance)
            )
            mean = np.mean(known) if known.size else 0.0
            bar = np.maximum(BY_ELEMENT * np.sqrt((variance + mean) / 2), self._most)
            bar = bar + size * output.error + output.eta
            bar += np.minimum(size + bar, output.flushed)
            bar = np.where(np.isinf(self.value), 0.0, bar)
        return Bound(self.value, bar, arithmetic.storage)
