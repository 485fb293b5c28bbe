"""Compressors that are wrong on purpose, each in one way; at the end some that are right."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from d5test.reference.collectives import ALLREDUCE, Schedule
from d5test.reference.compressors import (
    INDEX,
    QSGD,
    Compressor,
    Float16,
    OneBit,
    PowerSGD,
    State,
    TernGrad,
    Threshold,
    TopK,
    finite,
    packed,
    unpacked,
)


class ResidualDropped(TopK):
    """What is not sent is lost."""

    def encode(self, g: Any, state: Any) -> Any:
        payload = super().encode(g, state)
        state.residual = np.zeros_like(g)
        return payload


class ResidualUnused(TopK):
    """What is not sent is remembered, and never added to the next gradient."""

    def owed(self, g: Any, state: Any) -> Any:
        return g


class ResidualTwice(OneBit):
    """What was owed is still owed when it has been sent."""

    def encode(self, g: Any, state: Any) -> Any:
        before = state.residual
        payload = super().encode(g, state)
        state.residual = state.residual + before
        return payload


class ToNearest(QSGD):
    """Levels are the nearest ones, whatever the random words are."""

    def __init__(self) -> None:
        super().__init__(bits=4)

    def encode(self, g: Any, state: Any) -> Any:
        return super().encode(g, _Halves(state.residual, state.bits))


class Downwards(ToNearest):
    """Levels are rounded towards zero."""

    def encode(self, g: Any, state: Any) -> Any:
        return QSGD.encode(self, g, _Zeros(state.residual, state.bits))


class _Halves(State):
    def uniform(self, n: int) -> Any:
        return np.full(n, 0.5)


class _Zeros(State):
    def uniform(self, n: int) -> Any:
        return np.zeros(n)


class NarrowWords(TernGrad):
    """The random numbers are those of [0.5, 1): small items are never sent as they should be."""

    def encode(self, g: Any, state: Any) -> Any:
        return super().encode(g, _UpperHalf(state.residual, state.bits))


class _UpperHalf(State):
    def uniform(self, n: int) -> Any:
        return 0.5 + super().uniform(n) / 2


class IndicesOnly(TopK):
    """The values are not sent; a one is decoded in place of each."""

    def encode(self, g: Any, state: Any) -> Any:
        super().encode(g, state)
        return packed(self.chosen(g).astype(INDEX))

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        x = np.zeros(n, dtype)
        x[next(unpacked(payload, (INDEX, len(payload) // INDEX.itemsize)))] = 1
        return x


class TwiceAsLarge(Float16):
    """The payload is sent two times over."""

    def encode(self, g: Any, state: Any) -> Any:
        return np.tile(super().encode(g, state), 2)

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        return super().decode(payload[: len(payload) // 2], n, dtype)


class NotShorter(TopK):
    """All is sent with its indices, and the formula says so."""

    def __init__(self) -> None:
        super().__init__(share=1.0)


class OtherBucket(QSGD):
    """The norms are those of the next buckets."""

    def __init__(self) -> None:
        super().__init__(bits=8, bucket=4)

    def buckets(self, x: Any) -> Iterator[Any]:
        parts = list(super().buckets(x))
        yield from parts[1:] + parts[:1]


class NormOfAll(QSGD):
    """Norms are sent for the last bucket's alone: the others are scaled by it."""

    def __init__(self) -> None:
        super().__init__(bits=4, bucket=8)

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        count = -(-n // self.bucket)
        scales, codes = unpacked(payload, (dtype, count), (np.uint8, (n * self.bits + 7) // 8))
        return super().decode(packed(np.repeat(scales[-1:], count), codes), n, dtype)


class SignLost(QSGD):
    """Magnitudes are sent."""

    def __init__(self) -> None:
        super().__init__(bits=8)

    def encode(self, g: Any, state: Any) -> Any:
        return super().encode(np.abs(g), state)


class NotOrthogonal(PowerSGD):
    """The columns of P have length 1, and that is all."""

    def encode(self, g: Any, state: Any) -> Any:
        x = finite(self.owed(g, state))
        matrix = self.matrix(x)
        p = matrix @ state.basis
        lengths = np.linalg.norm(p, axis=0)
        p = p / np.where(lengths > 0, lengths, 1)
        q = matrix.T @ p
        payload = packed(p, q)
        self.remember(x, self.decode(payload, len(x), x.dtype), q, state)
        return payload


class Stale(PowerSGD):
    """Q is that of the iteration before."""

    def encode(self, g: Any, state: Any) -> Any:
        before = state.basis
        payload = super().encode(g, state)
        rows, _, columns = self.shape(len(g))
        p = next(unpacked(payload, (g.dtype, rows * columns)))
        return packed(p, before)


class OwnResidual(PowerSGD):
    """A rank takes for what was sent what it would have sent alone."""

    def mean(self, rank: int, size: int, g: Any, state: Any) -> Schedule:
        x = self.owed(g, state)
        alone = self.start(len(g), g.dtype, rank, 0)
        alone.basis = state.basis
        self.encode(x, alone)
        yield from super().mean(rank, size, g, state)
        state.residual = alone.residual


class SharedState(OneBit):
    """The residual is the compressor's, and not the rank's."""

    kept: Any = None

    def encode(self, g: Any, state: Any) -> Any:
        if self.kept is not None:
            state.residual = self.kept
        payload = super().encode(g, state)
        self.kept = state.residual
        return payload


class SharedByAll(TopK):
    """All states are one."""

    one: dict[tuple[int, Any], State] = {}  # noqa: RUF012 - that is the fault

    def start(self, n: int, dtype: Any, rank: int, seed: int) -> Any:
        fresh = super().start(n, dtype, rank, seed)
        return self.one.setdefault((n, dtype), fresh)


class Unseeded(TernGrad):
    """The random words are the process' own."""

    def encode(self, g: Any, state: Any) -> Any:
        return super().encode(g, State(state.residual, np.random.Philox()))


class NotANumberLost(TopK):
    """What is not finite is made so in silence."""

    def encode(self, g: Any, state: Any) -> Any:
        return super().encode(np.nan_to_num(g), state)


class Unrefused(QSGD):
    """NaN becomes some level."""

    def __init__(self) -> None:
        super().__init__(bits=4)

    def encode(self, g: Any, state: Any) -> Any:
        return super().encode(np.nan_to_num(g, posinf=0, neginf=0), state)


class RefusedAndRemembered(OneBit):
    """The residual is spoilt before anybody looks whether the gradient is finite."""

    def encode(self, g: Any, state: Any) -> Any:
        if not np.all(np.isfinite(g)):
            state.residual = g + state.residual
        return super().encode(g, state)


class ZeroByZero(TernGrad):
    """A scale of zero divides."""

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        x = super().decode(payload, n, dtype)
        return x * (np.max(np.abs(x), initial=0) / np.max(np.abs(x), initial=0))


class SquaresOverflow(QSGD):
    """The norm of a huge item is infinite."""

    def __init__(self) -> None:
        super().__init__(bits=8)

    def encode(self, g: Any, state: Any) -> Any:
        if np.isinf(np.sum(g * g)):
            g = g * g
        return super().encode(np.nan_to_num(g), state)


class Overwrites(TopK):
    """The gradient is the residual afterwards."""

    def encode(self, g: Any, state: Any) -> Any:
        payload = super().encode(g, state)
        g[...] = state.residual
        return payload


class Widened(Float16):
    """What is decoded is in float64."""

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        return super().decode(payload, n, np.float64 if dtype == np.float32 else np.float32)


class NoBytes(Float16):
    """The payload is an array of float16."""

    def encode(self, g: Any, state: Any) -> Any:
        return g.astype(np.float16)


class Raises(TopK):
    """It divides by nothing."""

    def encode(self, g: Any, state: Any) -> Any:
        return super().encode(g, state)[: 1 // (len(g) // (len(g) + 1))]


class NoFormula(TopK):
    """Its formula of bytes divides by nothing."""

    def nbytes(self, x: Any) -> int:
        return super().nbytes(x) // (len(x) // (len(x) + 1))


class OneError(TopK):
    """One error is claimed for all items."""

    def error(self, x: Any) -> Any:
        return np.max(super().error(x), initial=0)


class Unmade(TopK):
    """It has to be told a share."""

    def __init__(self, share: float) -> None:
        super().__init__(share)


class OwnExactly(Float16):
    """A rank adds its own gradient as it is, not as the others decode it."""

    def mean(self, rank: int, size: int, g: Any, state: Any) -> Schedule:
        lost = g - self.decode(self.encode(g, state), len(g), g.dtype)
        yield from super().mean(rank, size, g, state)
        g += lost / size


class OneRankTooFew(Float16):
    """The mean is over all ranks but one."""

    def mean(self, rank: int, size: int, g: Any, state: Any) -> Schedule:
        yield from super().mean(rank, size, g, state)
        g *= size / max(size - 1, 1)


class Uncompressed(Float16):
    """The mean is that of an allreduce: nothing is compressed on the way."""

    def mean(self, rank: int, size: int, g: Any, state: Any) -> Schedule:
        yield from ALLREDUCE["ring"].schedule(rank, size, g)
        g /= size


# what follows is right


class Third(TopK):
    """A third of the items."""

    def __init__(self) -> None:
        super().__init__(share=1 / 3)


class Low(Threshold):
    """A threshold that nearly all items reach."""

    def __init__(self) -> None:
        super().__init__(threshold=0.125)


class Odd(QSGD):
    """Three bits, and buckets of an odd length."""

    def __init__(self) -> None:
        super().__init__(bits=3, bucket=13)


class OneColumn(PowerSGD):
    """One column, summed along a tree."""

    def __init__(self) -> None:
        super().__init__(columns=1, algorithm="tree")


class Recovering(Float16):
    """Rounded to float16, and what is lost is added to the next gradient."""

    feedback = True

    def encode(self, g: Any, state: Any) -> Any:
        x = self.owed(g, state)
        payload = super().encode(x, state)
        decoded = self.decode(payload, len(x), x.dtype)
        lost = np.where(np.isfinite(decoded), x, 0) - np.where(np.isfinite(decoded), decoded, 0)
        state.residual = lost.astype(x.dtype)
        return payload


class Shifted(Compressor):
    """Every fourth item from a random one on, four times as large: unbiased, never independent."""

    unbiased = True

    def start(self, n: int, dtype: Any, rank: int, seed: int) -> Any:
        return np.random.Philox(key=[seed, rank])

    def encode(self, g: Any, state: Any) -> Any:
        finite(g)
        first = int(state.random_raw()) % 4
        values = np.zeros(-(-len(g) // 4), g.dtype)
        values[: len(g[first::4])] = g[first::4]
        return packed(np.array([first], np.uint8), values)

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        first, x = int(payload[0]), np.zeros(n, dtype)
        values = next(unpacked(payload[1:], (dtype, -(-n // 4))))
        x[first::4] = 4 * values[: len(x[first::4])]
        return x

    def nbytes(self, x: Any) -> int:
        return 1 + -(-len(x) // 4) * int(x.itemsize)

    def error(self, x: Any) -> Any:
        return 3 * np.abs(x.astype(np.float64))
