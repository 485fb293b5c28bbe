"""Compressed gradients: the bytes that a rank sends in place of one, and what they stand for.

A compressor makes bytes of a flat gradient `g` of n items, and an array of such bytes again:

    class Signs(Compressor):
        feedback = True

        def encode(self, g, state):
            x = self.owed(g, state)
            payload = packed(np.abs(x[:1]), np.packbits(x < 0))
            state.residual = x - self.decode(payload, len(x), x.dtype)
            return payload
        ...

It claims what it is: `unbiased`, with `feedback`, how many bytes it sends, by how much it may err.
All of these claims are judged (`d5test.distributed.compression`). It keeps nothing itself: what is
remembered on a rank between two gradients is the rank's `State`. So `decode`, which runs on other
ranks, has the payload alone.

Errors are claimed with the roundings of the compressor's own arithmetic.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, isqrt
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from d5test.reference.collectives import ALLREDUCE, Recv, Schedule, Send, Steps
from d5test.values import finfo

Array = NDArray[Any]
INDEX = np.dtype("u4")
"""Of an item among all."""
HEADER = 8
"""Bytes that tell how many are to follow."""


@dataclass
class State:
    """What one rank remembers between its gradients.

    residual  (n,): what it has not sent yet
    bits      random words of its own: other ranks have others
    basis     of `PowerSGD`: the columns with which its next iteration begins
    """

    residual: Any
    bits: np.random.Philox
    basis: Any = None

    def uniform(self, n: int) -> Any:
        """(n,): numbers of [0, 1), multiples of 2^-53."""
        return (self.bits.random_raw(n) >> np.uint64(11)) * 2.0**-53


class Compressor:
    """Makes bytes of gradients.

    unbiased         the mean of what is decoded, over the random words, is what was encoded
    feedback         what was lost is added to the next gradient: `residual` tells how much that is
    keeps_nonfinite  a NaN or an infinity is decoded as such, at its place; else `encode` raises
                     ValueError, and leaves the state as it was
    factors          whether `orthogonal` tells the columns of a payload that are orthonormal
    """

    unbiased: ClassVar[bool] = False
    feedback: ClassVar[bool] = False
    keeps_nonfinite: ClassVar[bool] = False
    factors: ClassVar[bool] = False

    def start(self, n: int, dtype: Any, rank: int, seed: int) -> Any:
        """What `rank` remembers before its first gradient of n items."""
        return State(np.zeros(n, dtype), np.random.Philox(key=[seed, rank]))

    def encode(self, g: Any, state: Any) -> Any:
        """The payload, a flat array of uint8. `g` stays as it is, the state goes on."""
        raise NotImplementedError

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        """(n,) of `dtype`: what a payload stands for."""
        raise NotImplementedError

    def nbytes(self, x: Array) -> int:
        """Bytes of the payload of `x`, which is the gradient with what was owed."""
        raise NotImplementedError

    def error(self, x: Any) -> Any:
        """(n,): by how much each item that is decoded may differ from that of `x`."""
        raise NotImplementedError

    def residual(self, state: Any) -> Any:
        """(n,): what is owed, with `feedback`."""
        return state.residual

    def owed(self, g: Any, state: Any) -> Any:
        """What is to be sent: the gradient, with `feedback` what was lost before as well."""
        return g + self.residual(state) if self.feedback else g

    def orthogonal(self, payload: Any, n: int, dtype: Any) -> Any:
        """(rows, columns): of a payload, those that are orthonormal."""
        raise NotImplementedError

    def mean(self, rank: int, size: int, g: Any, state: Any) -> Schedule:
        """Overwrite `g` by the mean of what all ranks send, the same bits at each of them."""
        payloads = yield from allgather(rank, size, self.encode(g, state))
        total = np.zeros_like(g)
        for payload in payloads:
            total += self.decode(payload, len(g), g.dtype)
        g[...] = total / size

    def sent(self, gradients: Sequence[Array]) -> int:
        """Bytes that all ranks send in `mean`, by what each has to send."""
        return (len(gradients) - 1) * sum(HEADER + self.nbytes(x) for x in gradients)


def allgather(rank: int, size: int, payload: Any) -> Generator[Steps, int, list[Any]]:
    """Every rank's payload, in the order of ranks. Lengths go round a ring first, then they do."""
    lengths = [np.array([len(payload) if r == rank else 0]) for r in range(size)]
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, lengths[rank - step]), Recv(left, lengths[left - step])
    parts = [
        payload if r == rank else np.empty(length[0], np.uint8) for r, length in enumerate(lengths)
    ]
    for step in range(size - 1):
        yield Send(right, parts[rank - step]), Recv(left, parts[left - step])
    return parts


def packed(*arrays: Any) -> Any:
    """The bytes of arrays, one after the other."""
    return np.concatenate([np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in arrays])


def unpacked(payload: Any, *parts: tuple[Any, int]) -> Iterator[Any]:
    """The arrays of a payload, by the dtype and the length of each."""
    start = 0
    for dtype, length in parts:
        end = start + length * np.dtype(dtype).itemsize
        yield np.frombuffer(payload[start:end].tobytes(), dtype)
        start = end


def narrow(codes: Any, bits: int) -> Any:
    """Whole numbers below 2^bits, (n,), in that many bits each."""
    return np.packbits(np.unpackbits(codes.astype(np.uint8)[:, None], axis=1)[:, -bits:])


def wide(data: Any, bits: int, n: int) -> Any:
    """The n numbers of which `narrow` made `data`."""
    digits = np.unpackbits(data, count=n * bits).reshape(n, bits)
    return np.packbits(np.pad(digits, ((0, 0), (8 - bits, 0))), axis=1).reshape(n)


def finite(x: Any) -> Any:
    """`x` itself. Raises ValueError where an item is NaN or infinite."""
    if not np.all(np.isfinite(x)):
        raise ValueError(f"[{int(np.argmin(np.isfinite(x)))}] is not finite")
    return x


class Sparse(Compressor):
    """Some items with their indices, four bytes each; the others wait."""

    feedback = True
    keeps_nonfinite = True

    def chosen(self, x: Any) -> Any:
        """The indices of the items that are sent, in ascending order."""
        raise NotImplementedError

    def encode(self, g: Any, state: Any) -> Any:
        """Indices, then values."""
        x = self.owed(g, state)
        at = self.chosen(x)
        state.residual = x.copy()
        state.residual[at] = 0
        return packed(at.astype(INDEX), x[at])

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        """Zero where nothing was sent."""
        count = len(payload) // (INDEX.itemsize + np.dtype(dtype).itemsize)
        at, values = unpacked(payload, (INDEX, count), (dtype, count))
        x = np.zeros(n, dtype)
        x[at] = values
        return x


class TopK(Sparse):
    """The largest magnitudes, a fixed share of all, at least one of them.

    Aji and Heafield, EMNLP 2017, algorithm 1; Lin et al., ICLR 2018; Stich, Cordonnier and Jaggi,
    NeurIPS 2018, algorithm 1.
    """

    def __init__(self, share: float = 0.1) -> None:
        self.share = share

    def count(self, n: int) -> int:
        """Items that are sent of n."""
        return min(n, max(1, round(self.share * n)))

    def chosen(self, x: Any) -> Any:
        """NaN counts as larger than all numbers."""
        rest = len(x) - self.count(len(x))
        return np.sort(np.argpartition(np.abs(x), rest)[rest:]) if len(x) else np.arange(0)

    def nbytes(self, x: Array) -> int:
        """k (4 + itemsize)."""
        return self.count(len(x)) * (INDEX.itemsize + x.itemsize)

    def error(self, x: Any) -> Any:
        """What waits is no larger than the least that is sent."""
        size = np.abs(x)
        return np.full_like(x, np.sort(size)[-self.count(len(x))]) if len(x) else size


class Threshold(Sparse):
    """The magnitudes of at least `threshold`; all items without indices where that is shorter.

    Strom, Interspeech 2015, without its quantisation; the switch to dense data is that of Renggli
    et al., SC 2019.
    """

    def __init__(self, threshold: float = 1.0) -> None:
        self.threshold = threshold

    def chosen(self, x: Any) -> Any:
        """NaN is sent."""
        return np.flatnonzero(~(np.abs(x) < self.threshold))

    def dense(self, x: Array) -> bool:
        """Whether items without indices take no more bytes."""
        return len(self.chosen(x)) * (INDEX.itemsize + x.itemsize) >= x.nbytes

    def encode(self, g: Any, state: Any) -> Any:
        """Indices, then values; or all values."""
        x = self.owed(g, state)
        if not self.dense(x):
            return super().encode(g, state)
        state.residual = np.zeros_like(x)
        return packed(x)

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        """The length tells which of the two it is."""
        if len(payload) == n * np.dtype(dtype).itemsize:
            return next(unpacked(payload, (dtype, n)))
        return super().decode(payload, n, dtype)

    def nbytes(self, x: Array) -> int:
        """k (4 + itemsize) for k items of at least the threshold; at most n itemsize."""
        return min(len(self.chosen(x)) * (INDEX.itemsize + x.itemsize), x.nbytes)

    def error(self, x: Any) -> Any:
        """What waits is below the threshold."""
        return np.full_like(x, 0 if self.dense(x) else self.threshold)


class Levels(Compressor):
    """Stochastic rounding to few equidistant levels between -scale and scale, bucket by bucket.

    bits    of an item: its level is one of 2^bits - 1
    bucket  items that share a scale
    """

    unbiased = True

    def __init__(self, bits: int, bucket: int = 128) -> None:
        self.bits, self.bucket = bits, bucket
        self.top = 2 ** (bits - 1) - 1

    def scale(self, x: Any) -> Any:
        """Of a bucket in float64: no magnitude is larger."""
        raise NotImplementedError

    def buckets(self, x: Any) -> Iterator[Any]:
        """Slices of `x`; the last one may be shorter."""
        return (x[start : start + self.bucket] for start in range(0, len(x), self.bucket))

    def encode(self, g: Any, state: Any) -> Any:
        """The scales, then the levels. Level l is sent as l + top."""
        x = finite(g)
        scales = np.array([self.scale(b.astype(np.float64)) for b in self.buckets(x)], x.dtype)
        each = np.repeat(scales.astype(np.float64), self.bucket)[: len(x)]
        share = np.divide(np.abs(x), each, out=np.zeros(len(x)), where=each > 0)
        levels = np.floor(np.minimum(share, 1) * self.top + state.uniform(len(x)))
        return packed(scales, narrow(np.copysign(levels, x) + self.top, self.bits))

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        """Each level times the scale of its bucket."""
        count, packed_bytes = ceil(n / self.bucket), ceil(n * self.bits / 8)
        scales, codes = unpacked(payload, (dtype, count), (np.uint8, packed_bytes))
        each = np.repeat(scales.astype(np.float64), self.bucket)[:n]
        levels = wide(codes, self.bits, n).astype(np.float64) - self.top
        return (each * (levels / self.top)).astype(dtype)

    def nbytes(self, x: Array) -> int:
        """A scale for each bucket, and the bits."""
        return ceil(len(x) / self.bucket) * x.itemsize + ceil(len(x) * self.bits / 8)

    def error(self, x: Any) -> Any:
        """A step between two levels, and roundings of the scale and of the product."""
        info = np.finfo(x.dtype)
        scales = [np.full(len(b), self.scale(b.astype(np.float64))) for b in self.buckets(x)]
        each = np.concatenate([*scales, np.zeros(0)])
        return each * (1 / self.top + 2 * info.eps) + 2 * info.smallest_subnormal


class QSGD(Levels):
    """The scale is the Euclidean norm of a bucket. Alistarh et al., NIPS 2017.

    The codes are of a fixed length, not Elias'.
    """

    def scale(self, x: Any) -> Any:
        """Squares do not overflow."""
        largest = np.max(np.abs(x))
        return largest * np.sqrt(np.sum((x / largest) ** 2)) if largest > 0 else largest


class TernGrad(Levels):
    """The scale is the largest magnitude, the levels are -1, 0 and 1. Wen et al., NIPS 2017.

    Each rank has scales of its own; gradients are not clipped.
    """

    def __init__(self, bucket: int = 128) -> None:
        super().__init__(bits=2, bucket=bucket)

    def scale(self, x: Any) -> Any:
        """Of a bucket."""
        return np.max(np.abs(x))


class OneBit(Compressor):
    """The signs, and of each bucket the mean of its items of either sign. Seide et al. 2014.

    The paper's buckets are the columns of a weight matrix.
    """

    feedback = True

    def __init__(self, bucket: int = 128) -> None:
        self.bucket = bucket

    def sides(self, x: Any) -> Iterator[tuple[slice, Any, Any]]:
        """Of each bucket: where it is, its items that are negative, and the others."""
        for start in range(0, len(x), self.bucket):
            place = slice(start, start + self.bucket)
            part = x[place].astype(np.float64)
            yield place, part[part < 0], part[part >= 0]

    def encode(self, g: Any, state: Any) -> Any:
        """Two means a bucket, then the signs."""
        x = finite(self.owed(g, state))
        means = [[_mean(side) for side in sides] for _, *sides in self.sides(x)]
        payload = packed(np.array(means, x.dtype), np.packbits(x >= 0))
        state.residual = x - self.decode(payload, len(x), x.dtype)
        return payload

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        """For each item the mean of its side."""
        count = ceil(n / self.bucket)
        means, signs = unpacked(payload, (dtype, 2 * count), (np.uint8, ceil(n / 8)))
        return means[2 * (np.arange(n) // self.bucket) + np.unpackbits(signs, count=n)]

    def nbytes(self, x: Array) -> int:
        """Two items a bucket, and a bit for each item."""
        return 2 * ceil(len(x) / self.bucket) * x.itemsize + ceil(len(x) / 8)

    def error(self, x: Any) -> Any:
        """The mean of a side lies within it."""
        info, error = np.finfo(x.dtype), np.zeros(len(x))
        for place, *sides in self.sides(x):
            widest = max(np.ptp(side) for side in sides if len(side))
            error[place] = widest + info.eps * np.max(np.abs(x[place]))
        return error + info.smallest_subnormal


def _mean(x: Any) -> Any:
    """Zero of nothing; no sum overflows."""
    return np.sum(x / len(x)) if len(x) else 0.0


class Narrow(Compressor):
    """Each item rounded to nearest in a format of two bytes; infinite where it is beyond that."""

    keeps_nonfinite = True
    dtype: ClassVar[Any]

    def encode(self, g: Any, state: Any) -> Any:
        """As torch's `fp16_compress_hook` and `bf16_compress_hook`, which keep no residual."""
        with np.errstate(over="ignore"):
            return packed(g.astype(self.dtype))

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        """Exactly."""
        return next(unpacked(payload, (self.dtype, n))).astype(dtype)

    def nbytes(self, x: Array) -> int:
        """Two bytes an item."""
        return 2 * len(x)

    def error(self, x: Any) -> Any:
        """Half a ULP of the format; infinite where it is too narrow."""
        info = finfo(self.dtype)
        size = np.abs(x.astype(np.float64))
        half = size * float(info.eps) / 2 + float(info.smallest_subnormal) / 2
        return np.where(size > float(info.max), np.inf, half)


class Float16(Narrow):
    """IEEE's binary16."""

    dtype = np.dtype("float16")


class BFloat16(Narrow):
    """The upper half of a float32. Out of float64 it is rounded twice, by way of float32."""

    dtype = np.dtype(ml_dtypes.bfloat16)

    def error(self, x: Any) -> Any:
        """The first rounding is less than a hundredth of the second."""
        return 1.01 * super().error(x)


class PowerSGD(Compressor):
    """The gradient as a square matrix M, in a product of few columns: M is about P Q'.

    P is what one power iteration makes of the last Q, orthonormal, and Q = M' P. On many ranks M
    is the mean of the ranks' matrices, to which nobody has to be given more than P and Q, since
    both are linear in it. Vogels, Karimireddy and Jaggi, NeurIPS 2019, algorithms 1 and 2, with
    all gradients in one matrix, as torch's `batched_powerSGD_hook`. Q is made orthonormal before
    it is used again: that changes no column space, and nothing overflows.
    """

    feedback = True
    factors = True

    def __init__(self, columns: int = 2, algorithm: str = "ring") -> None:
        self.columns, self.algorithm = columns, algorithm

    def shape(self, n: int) -> tuple[int, int, int]:
        """Rows of M, its columns, and those of P and Q. M is filled up with zeros."""
        rows = isqrt(max(n, 1) - 1) + 1
        width = max(1, ceil(n / rows))
        return rows, width, min(self.columns, rows, width)

    def start(self, n: int, dtype: Any, rank: int, seed: int) -> Any:
        """All ranks begin with the same columns."""
        _, width, columns = self.shape(n)
        state = super().start(n, dtype, rank, seed)
        shared: State = super().start(n, dtype, 0, seed)
        basis = shared.uniform(width * columns).reshape(width, columns) - 0.5
        state.basis = orthonormal(basis.astype(dtype))
        return state

    def matrix(self, x: Any) -> Any:
        """M, (rows, width)."""
        rows, width, _ = self.shape(len(x))
        return np.pad(x, (0, rows * width - len(x))).reshape(rows, width)

    def encode(self, g: Any, state: Any) -> Any:
        """P, then Q, of this rank alone."""
        x = finite(self.owed(g, state))
        matrix = self.matrix(x)
        p = orthonormal(matrix @ state.basis)
        q = matrix.T @ p
        payload = packed(p, q)
        self.remember(x, self.decode(payload, len(x), x.dtype), q, state)
        return payload

    def decode(self, payload: Any, n: int, dtype: Any) -> Any:
        """P Q'."""
        rows, width, columns = self.shape(n)
        p, q = unpacked(payload, (dtype, rows * columns), (dtype, width * columns))
        return (p.reshape(rows, columns) @ q.reshape(width, columns).T).reshape(-1)[:n]

    def orthogonal(self, payload: Any, n: int, dtype: Any) -> Any:
        """P."""
        rows, _, columns = self.shape(n)
        return next(unpacked(payload, (dtype, rows * columns))).reshape(rows, columns)

    def remember(self, x: Any, sent: Any, q: Any, state: Any) -> None:
        """What is owed of `x`, and where the next iteration begins."""
        state.residual = x - sent
        state.basis = orthonormal(q)

    def mean(self, rank: int, size: int, g: Any, state: Any) -> Schedule:
        """P and Q of the mean matrix, by an allreduce each."""
        allreduce = ALLREDUCE[self.algorithm].schedule
        x = finite(self.owed(g, state))
        matrix = self.matrix(x)
        p = matrix @ state.basis
        yield from allreduce(rank, size, p.reshape(-1))
        p = orthonormal(p / size)
        q = matrix.T @ p
        yield from allreduce(rank, size, q.reshape(-1))
        q /= size
        g[...] = self.decode(packed(p, q), len(g), g.dtype)
        self.remember(x, g, q, state)

    def sent(self, gradients: Sequence[Array]) -> int:
        """Those of an allreduce of P and one of Q."""
        size, x = len(gradients), gradients[0]
        rows, width, columns = self.shape(len(x))
        items = ALLREDUCE[self.algorithm].items
        return x.itemsize * (items(size, rows * columns) + items(size, width * columns))

    def nbytes(self, x: Array) -> int:
        """P and Q."""
        rows, width, columns = self.shape(len(x))
        return (rows + width) * columns * x.itemsize

    def error(self, x: Any) -> Any:
        """A projection leaves no more than there was: the norm, and roundings."""
        rows, width, columns = self.shape(len(x))
        info, exact = np.finfo(x.dtype), x.astype(np.float64)
        largest = np.max(np.abs(exact), initial=0)
        norm = largest * np.sqrt(np.sum((exact / largest) ** 2)) if largest > 0 else 0.0
        roundings = (rows + width) * columns * (info.eps * norm + info.smallest_subnormal)
        return np.full(len(x), norm + roundings)


def orthonormal(columns: Any) -> Any:
    """Columns that span those given, also where these depend on each other (Householder's QR)."""
    return np.ascontiguousarray(np.linalg.qr(columns)[0])


Compressing = Callable[[], Compressor]
COMPRESSORS: Mapping[str, Compressing] = {
    "topk": TopK,
    "threshold": Threshold,
    "qsgd-2": partial(QSGD, 2),
    "qsgd-4": partial(QSGD, 4),
    "qsgd-8": partial(QSGD, 8),
    "terngrad": TernGrad,
    "one_bit": OneBit,
    "powersgd": PowerSGD,
    "float16": Float16,
    "bfloat16": BFloat16,
}
"""By name."""
