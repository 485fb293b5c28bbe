"""Allreduce of vectors that are mostly zero: what is sent is the items that are not, and where.

Renggli et al., SparCML, SC 2019. Arrays are flat, and `x` holds a rank's contribution, and the sum
afterwards, as in `d5test.reference.collectives`; so do these schedules run as those. A *stream* is
what travels: the number of its items in 8 bytes, then indices of 4 bytes and values; or all values
of its part of the vector, as soon as that is no longer (the paper's switch to dense).

An item that is zero is no item, even if it is the sum of two that are not.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.reference.collectives import Recv, Schedule, Send, Steps
from d5test.reference.compressors import HEADER, INDEX, packed, unpacked

DENSE = -1
"""In a header, in place of the number of items: all of them follow."""
Support = np.ndarray[Any, np.dtype[np.bool_]]
"""(n,): where a vector is not zero."""


def is_dense(count: int, n: int, itemsize: int) -> bool:
    """Whether all of n items are sent where `count` are not zero: pairs are no shorter."""
    return count * (INDEX.itemsize + itemsize) >= n * itemsize


def stream(x: Any) -> tuple[Any, Any]:
    """Header and body of what is sent of a part of a vector."""
    at = np.flatnonzero(x)
    if is_dense(len(at), len(x), x.itemsize):
        return np.array([DENSE]), packed(x)
    return np.array([len(at)]), packed(at.astype(INDEX), x[at])


def room_for(header: Any, like: Any) -> Any:
    """Room for the body that follows a header, of a part of the vector that is `like` this one."""
    count = int(header[0])
    pairs = count * (INDEX.itemsize + like.itemsize)
    return np.zeros(like.nbytes if count == DENSE else pairs, np.uint8)


def part_of(header: Any, body: Any, like: Any) -> Any:
    """The part of the vector that a stream stands for, zeros included."""
    count = int(header[0])
    if count == DENSE:
        return next(unpacked(body, (like.dtype, len(like))))
    at, values = unpacked(body, (INDEX, count), (like.dtype, count))
    x = np.zeros_like(like)
    x[at] = values
    return x


Received = Generator[Steps, int, Any]
"""A schedule that returns the part of a vector that it has received."""


def exchange(to: int, x: Any, source: int, like: Any) -> Received:
    """Send a part of a vector while another one comes, that is `like` this one."""
    (head, body), header = stream(x), np.zeros(1, np.int64)
    yield Send(to, head), Recv(source, header)
    room = room_for(header, like)
    yield Send(to, body), Recv(source, room)
    return part_of(header, room, like)


def give(to: int, x: Any) -> Schedule:
    """Send a part of a vector."""
    for data in stream(x):
        yield Send(to, data)


def take(source: int, like: Any) -> Received:
    """Receive a part of a vector that is `like` this one."""
    header = np.zeros(1, np.int64)
    yield Recv(source, header)
    room = room_for(header, like)
    yield Recv(source, room)
    return part_of(header, room, like)


def recursive_doubling(rank: int, size: int, x: Any) -> Schedule:
    """Streams are exchanged with partners at distances 1, 2, 4, ...

    Section 5.3, SSAR_Recursive_double. Of the ranks beyond a power of two, each lets its neighbour
    do its part.
    """
    members = 1 << size.bit_length() - 1
    pairs = size - members
    if rank < 2 * pairs and rank % 2 == 0:
        yield from give(rank + 1, x)
        x[...] = yield from take(rank + 1, x)
        return
    if rank < 2 * pairs:
        part = yield from take(rank - 1, x)
        np.add(x, part, out=x)
    member, bit = (rank // 2 if rank < 2 * pairs else rank - pairs), 1
    while bit < members:
        other = member ^ bit
        partner = 2 * other + 1 if other < pairs else other + pairs
        part = yield from exchange(partner, x, partner, x)
        np.add(x, part, out=x)
        bit <<= 1
    if rank < 2 * pairs:
        yield from give(rank - 1, x)


def split_allgather(rank: int, size: int, x: Any) -> Schedule:
    """Each rank sums one chunk, of which all send it their streams; the sums go round a ring.

    Section 5.3, SSAR_Split_allgather; where the sums are dense, DSAR_Split_allgather. In the first
    phase rank r sends to r + 1, r + 2, ... in turn.
    """
    chunks = np.array_split(x, size)
    parts = {rank: chunks[rank].copy()}
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        parts[source] = yield from exchange(to, chunks[to], source, chunks[rank])
    chunks[rank][...] = 0
    for other in range(size):
        np.add(chunks[rank], parts[other], out=chunks[rank])
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        room = chunks[left - step]
        room[...] = yield from exchange(right, chunks[rank - step], left, room)


def length(support: Support, itemsize: int) -> int:
    """Bytes of the stream of a part of a vector that is not zero there."""
    count, n = int(np.count_nonzero(support)), len(support)
    pairs = n if is_dense(count, n, itemsize) else 0
    return HEADER + (pairs * itemsize or count * (INDEX.itemsize + itemsize))


def doubling_bytes(supports: Sequence[Support], itemsize: int) -> list[int]:
    """What each rank sends in `recursive_doubling`: after t rounds, the union of 2^t supports."""
    size = len(supports)
    members = 1 << size.bit_length() - 1
    pairs = size - members
    sent = [0] * size
    ranks = [2 * m + 1 if m < pairs else m + pairs for m in range(members)]
    unions = {rank: supports[rank] for rank in ranks}
    for rank in range(0, 2 * pairs, 2):
        sent[rank] += length(supports[rank], itemsize)
        unions[rank + 1] = unions[rank + 1] | supports[rank]
    bit = 1
    while bit < members:
        for rank in ranks:
            sent[rank] += length(unions[rank], itemsize)
        unions = {rank: unions[rank] | unions[ranks[m ^ bit]] for m, rank in enumerate(ranks)}
        bit <<= 1
    for rank in range(1, 2 * pairs, 2):
        sent[rank] += length(unions[rank], itemsize)
    return sent


def split_bytes(supports: Sequence[Support], itemsize: int) -> list[int]:
    """What each rank sends in `split_allgather`: its chunks of others, then all sums but one."""
    size = len(supports)
    chunks = [np.array_split(support, size) for support in supports]
    sums = [length(np.any([own[c] for own in chunks], axis=0), itemsize) for c in range(size)]
    sent = []
    for rank, own in enumerate(chunks):
        others = sum(length(own[c], itemsize) for c in range(size) if c != rank)
        # the last chunk of the ring, which a rank does not pass on, is its right neighbour's
        sent.append(others + sum(sums) - sums[(rank + 1) % size])
    return sent


@dataclass(frozen=True)
class SparseAlgorithm:
    """An allreduce of sparse vectors and what it costs.

    schedule  `(rank, size, x)`
    streams   `(size)`: streams that all ranks send, each of two messages
    sent      `(supports, itemsize)`: bytes that each rank sends, where no sum is zero by chance
    source    where the formulas stand
    """

    schedule: Callable[[int, int, Any], Schedule]
    streams: Callable[[int], int]
    sent: Callable[[Sequence[Support], int], list[int]]
    source: str


def _doubling_streams(size: int) -> int:
    exponent = size.bit_length() - 1
    spare = size - (1 << exponent)
    return 2 * spare + (size - spare) * exponent


SPARSE_ALLREDUCE: Mapping[str, SparseAlgorithm] = {
    "sparse_recursive_doubling": SparseAlgorithm(
        recursive_doubling,
        streams=_doubling_streams,
        sent=doubling_bytes,
        source="Renggli et al., SC 2019: log2 p rounds of the union of 2^t supports",
    ),
    "sparse_split_allgather": SparseAlgorithm(
        split_allgather,
        streams=lambda p: 2 * p * (p - 1),
        sent=split_bytes,
        source="Renggli et al., SC 2019: chunks to their owner, then round",
    ),
}
"""By name. Ranks have the same bits: a sum is formed once, or of the same two parts at both."""
