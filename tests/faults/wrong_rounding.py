"""Backends that compute in float64, or nearly, and store their results by a rounding of their own.

Each result is one of the neighbours of the exact value, or next to one, so that no case is wrong.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from d5test.backends.base import FLOATS, name_of
from d5test.numerics.arithmetic import format_of
from tests.faults.wrong import Array, Arrays, Honest, Wrong

HIDDEN = {"float16": 42, "bfloat16": 45, "float32": 29}
"""Bits of a float64 below those of a dtype."""


class Stored(Wrong):
    """`store` makes of a result in float64 one that the dtype has, still in float64."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        floats = [x for x in inputs if x is not None and name_of(x.dtype) in FLOATS]
        if not floats or name_of(floats[0].dtype) == "float64":
            return honest(*inputs)
        dtype = floats[0].dtype
        wide = (
            x.astype(np.float64) if x is not None and name_of(x.dtype) in FLOATS else x
            for x in inputs
        )
        with np.errstate(all="ignore"):
            return tuple(
                self._stored(y, dtype) if y.dtype == np.float64 else y for y in honest(*wide)
            )

    def _stored(self, y: Array, dtype: Any) -> Array:
        """What the dtype has stays as it is."""
        return np.where(chopped(y, dtype) == y, y, self.store(y, dtype)).astype(dtype)

    def store(self, y: Array, dtype: Any) -> Array:
        raise NotImplementedError


def chopped(y: Array, dtype: Any) -> Array:
    """The bits that the dtype has not, cut off."""
    bits = np.ascontiguousarray(y).view(np.int64) >> HIDDEN[name_of(dtype)]
    return np.asarray((bits << HIDDEN[name_of(dtype)]).view(np.float64)).reshape(y.shape)


def spacing(y: Array, dtype: Any) -> Array:
    """The distance of neighbouring numbers of the dtype at y."""
    return np.asarray(np.ldexp(1.0, np.frexp(y)[1] - format_of(name_of(dtype)).precision))


class Chopped(Stored):
    """Toward zero: the upper half of a float32 taken for a bfloat16."""

    def store(self, y: Array, dtype: Any) -> Array:
        return chopped(y, dtype)


class ChoppedWhereBroadcast(Chopped):
    """Toward zero, in the loop for operands that broadcast."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return super().forward(honest, *inputs) if self.chops(*inputs) else honest(*inputs)

    def chops(self, *inputs: Any) -> bool:
        return len({x.shape for x in inputs}) > 1


class ChoppedWhereAlike(ChoppedWhereBroadcast):
    """Toward zero, in the loop for operands of one shape."""

    def chops(self, *inputs: Any) -> bool:
        return not super().chops(*inputs)


ONE_LOOP = {ChoppedWhereBroadcast: "that broadcast", ChoppedWhereAlike: "of one shape"}


class Outward(Stored):
    """Away from zero."""

    def store(self, y: Array, dtype: Any) -> Array:
        low = chopped(y, dtype)
        return np.where(low == y, y, low + np.copysign(spacing(y, dtype), y))


class Up(Stored):
    """To the larger number."""

    def store(self, y: Array, dtype: Any) -> Array:
        low = chopped(y, dtype)
        return np.where((low == y) | (y < 0), low, low + spacing(y, dtype))


class Down(Stored):
    """To the smaller number."""

    def store(self, y: Array, dtype: Any) -> Array:
        low = chopped(y, dtype)
        return np.where((low == y) | (y > 0), low, low - spacing(y, dtype))


class Even(Stored):
    """To nearest, ties to even: honest."""

    def store(self, y: Array, dtype: Any) -> Array:
        return y


class TiesAway(Stored):
    """To nearest, ties away from zero: honest."""

    def store(self, y: Array, dtype: Any) -> Array:
        return chopped(y + np.copysign(spacing(y, dtype) / 2, y), dtype)


class Twice(Stored):
    """To float32 first: honest."""

    def store(self, y: Array, dtype: Any) -> Array:
        return y.astype(np.float32)


class FlushedToZero(Stored):
    """To nearest, without subnormal numbers: honest."""

    def store(self, y: Array, dtype: Any) -> Array:
        least = format_of(name_of(dtype)).smallest_normal
        return np.where(np.abs(y) < least, 0.0, y)


class Stochastic(Stored):
    """To either neighbour, the nearer one more often: honest over all."""

    def store(self, y: Array, dtype: Any) -> Array:
        shift = np.random.default_rng(0).uniform(-0.5, 0.5, y.shape)
        return np.asarray(y + shift * spacing(y, dtype))


class Shifted(Stored):
    """Off by a part of an ULP, always to the same side, before it is rounded: a poor function."""

    part: ClassVar[float]

    def store(self, y: Array, dtype: Any) -> Array:
        return np.asarray(y - self.part * np.copysign(spacing(y, dtype), y))


class Scaled(Stored):
    """A constant that is half a ULP too small, as 1 / n in bfloat16 may be: honest in class P."""

    def store(self, y: Array, dtype: Any) -> Array:
        return np.asarray(y * (1 - 2.0 ** -format_of(name_of(dtype)).precision))


def shifted(part: float) -> Callable[[], Shifted]:
    """One that is off by this part of an ULP."""
    return type("Shifted", (Shifted,), {"part": part})
