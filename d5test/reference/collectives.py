"""Allreduce as schedules: what each rank sends and receives, step by step.

A schedule is a generator. It yields a `Send` or a `Recv`, or a tuple of them that go on at the
same time, and is resumed when all of them are done; what it gets back is the rank that the last
`Recv` heard from. A send may wait for its receiver (nothing is buffered), and its data may be read
until it is done. `Get` and `Accumulate` reach an array that another rank exposes. Who runs a
schedule is a communicator: here is no MPI.

Arrays are flat and contiguous; `x` holds a rank's contribution, and the result afterwards.
Messages carry slices of it. Formulas count all ranks together; an item is an element of `x`.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

import numpy as np

ANY = -1
"""A source: whoever sends first."""
SEGMENTS = 4
"""Into so many segments a pipeline cuts what goes through it."""


@dataclass(frozen=True, eq=False, slots=True)
class Send:
    """Give `data` to rank `to`. Messages of different `tag` may overtake each other."""

    to: int
    data: Any
    tag: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Recv:
    """Fill `into`, which has the size of the message, with what rank `source` (or `ANY`) sends."""

    source: int
    into: Any
    tag: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Get:
    """Fill `into` from the array of rank `target`, from element `start` on. It takes no part."""

    target: int
    into: Any
    start: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Accumulate:
    """Add `data` to the array of rank `target`, each element at once; done when it is there."""

    target: int
    data: Any
    start: int = 0


Step = Send | Recv | Get | Accumulate
Steps = Step | tuple[Step, ...]
Schedule = Generator[Steps, int, None]


def within(schedule: Schedule, members: Sequence[int]) -> Schedule:
    """The schedule of rank `i` of a group, as that of rank `members[i]` of all."""
    heard = None
    while True:
        try:
            # the first time, a generator takes nothing but None
            steps = schedule.send(heard)  # type: ignore[arg-type]
        except StopIteration:
            return
        each = steps if isinstance(steps, tuple) else (steps,)
        source = yield tuple(_among(step, members) for step in each)
        heard = members.index(source) if source in members else None


def _among(step: Step, members: Sequence[int]) -> Step:
    if isinstance(step, Send):
        return replace(step, to=members[step.to])
    if isinstance(step, Recv):
        return step if step.source == ANY else replace(step, source=members[step.source])
    return replace(step, target=members[step.target])


def star(rank: int, size: int, x: Any) -> Schedule:
    """Rank 0 adds the contributions in the order of the ranks, and hands out the sum."""
    if rank > 0:
        yield Send(0, x)
        yield Recv(0, x)
        return
    part = np.empty_like(x)
    for other in range(1, size):
        yield Recv(other, part)
        np.add(x, part, out=x)
    yield tuple(Send(other, x) for other in range(1, size))


def tree(rank: int, size: int, x: Any) -> Schedule:
    """Along a binomial tree to rank 0, and back. Thakur, Rabenseifner and Gropp 2005, 3.1."""
    yield from reduce(rank, size, x)
    yield from broadcast(rank, size, x)


def reduce(rank: int, size: int, x: Any) -> Schedule:
    """The sum at rank 0 alone, along a binomial tree; elsewhere `x` is part of it afterwards."""
    part, bit = np.empty_like(x), 1
    while bit < size and not rank & bit:
        if rank + bit < size:
            yield Recv(rank + bit, part)
            np.add(x, part, out=x)
        bit <<= 1
    if rank > 0:
        yield Send(rank - bit, x)


def broadcast(rank: int, size: int, x: Any) -> Schedule:
    """What rank 0 has, at every rank, along a binomial tree."""
    bit = rank & -rank if rank else 1 << (size - 1).bit_length()
    if rank > 0:
        yield Recv(rank - bit, x)
    while bit > 1:
        bit >>= 1
        if rank + bit < size:
            yield Send(rank + bit, x)


def chain(rank: int, size: int, x: Any) -> Schedule:
    """What rank 0 has, at every rank: in segments, from each rank to the next one.

    A rank hands a segment on while it is sent the next. Patarasuk, Faraj and Yuan, IPDPS 2006, 3.
    """
    segments = np.array_split(x, SEGMENTS)
    for coming in range(SEGMENTS + 1):
        steps: list[Step] = []
        if rank > 0 and coming < SEGMENTS:
            steps.append(Recv(rank - 1, segments[coming]))
        if rank < size - 1 and coming > 0:
            steps.append(Send(rank + 1, segments[coming - 1]))
        yield tuple(steps)


def pipelined(rank: int, size: int, x: Any) -> Schedule:
    """In segments, along a chain: added up on the way to rank 0, and handed out on the way back.

    A rank sends a segment while it is sent the next.
    """
    segments = np.array_split(x, SEGMENTS)
    parts = [np.empty_like(segment) for segment in segments]
    for coming in range(SEGMENTS + 1):
        steps: list[Step] = []
        if rank < size - 1 and coming < SEGMENTS:
            steps.append(Recv(rank + 1, parts[coming]))
        if rank > 0 and coming > 0:
            steps.append(Send(rank - 1, segments[coming - 1]))
        yield tuple(steps)
        if rank < size - 1 and coming < SEGMENTS:
            np.add(segments[coming], parts[coming], out=segments[coming])
    yield from chain(rank, size, x)


def width(size: int) -> int:
    """Ranks of a node in the two-level schedules: as many as there are nodes, or one more."""
    return isqrt(size - 1) + 1


def hierarchical(rank: int, size: int, x: Any) -> Schedule:
    """In each node to its first rank, among these by recursive doubling, and back.

    Two levels, as on nodes with shared memory: Karonis et al., IPDPS 2000.
    """
    first, of_node = rank - rank % width(size), width(size)
    members = range(first, min(first + of_node, size))
    leaders = range(0, size, of_node)
    yield from within(reduce(rank - first, len(members), x), members)
    if rank == first:
        leader = recursive_doubling(rank // of_node, len(leaders), x)
        yield from within(leader, leaders)
    yield from within(broadcast(rank - first, len(members), x), members)


def ring(rank: int, size: int, x: Any) -> Schedule:
    """Chunks go round twice: to be added up, to be handed out. Patarasuk and Yuan 2009."""
    chunks = np.array_split(x, size)
    part = np.empty_like(chunks[0])
    right, left = (rank + 1) % size, (rank - 1) % size  # below 0, an index goes round by itself
    for step in range(size - 1):
        chunk = chunks[left - step]
        room = part[: len(chunk)]
        yield Send(right, chunks[rank - step]), Recv(left, room)
        np.add(chunk, room, out=chunk)
    for step in range(size - 1):
        yield Send(right, chunks[right - step]), Recv(left, chunks[rank - step])


def recursive_doubling(rank: int, size: int, x: Any) -> Schedule:
    """Everything is exchanged with partners at distances 1, 2, 4, ... Thakur et al. 2005, 4.5."""
    yield from _folded(rank, size, x, _doubling)


def halving_doubling(rank: int, size: int, x: Any) -> Schedule:
    """Halves are exchanged, then quarters, ..., and back. Rabenseifner 2004, section 4."""
    yield from _folded(rank, size, x, _halving_doubling)


Core = Callable[[int, int, Any, Callable[[int], int]], Schedule]
"""A schedule for a power of two of members; the last argument is a member's rank."""


def _folded(rank: int, size: int, x: Any, core: Core) -> Schedule:
    """For any number of ranks: of the first few, each even one lets its neighbour do its part."""
    members = 1 << size.bit_length() - 1
    pairs = size - members
    if rank < 2 * pairs and rank % 2 == 0:
        yield Send(rank + 1, x)
        yield Recv(rank + 1, x)
        return
    if rank < 2 * pairs:
        part = np.empty_like(x)
        yield Recv(rank - 1, part)
        np.add(x, part, out=x)
    member = rank // 2 if rank < 2 * pairs else rank - pairs
    yield from core(member, members, x, lambda m: 2 * m + 1 if m < pairs else m + pairs)
    if rank < 2 * pairs:
        yield Send(rank - 1, x)


def _doubling(member: int, members: int, x: Any, rank_of: Callable[[int], int]) -> Schedule:
    part, bit = np.empty_like(x), 1
    while bit < members:
        partner = rank_of(member ^ bit)
        yield Send(partner, x), Recv(partner, part)
        np.add(x, part, out=x)
        bit <<= 1


def _halving_doubling(
    member: int, members: int, x: Any, rank_of: Callable[[int], int]
) -> Schedule:
    low, high, bit, halvings = 0, len(x), members >> 1, []
    part = np.empty_like(x[: high - high // 2])
    while bit:
        middle, partner = (low + high) // 2, rank_of(member ^ bit)
        lower, upper = x[low:middle], x[middle:high]
        mine, theirs = (upper, lower) if member & bit else (lower, upper)
        room = part[: len(mine)]
        yield Send(partner, theirs), Recv(partner, room)
        np.add(mine, room, out=mine)
        halvings.append((partner, mine, theirs))
        low, high = (middle, high) if member & bit else (low, middle)
        bit >>= 1
    for partner, mine, theirs in reversed(halvings):
        yield Send(partner, mine), Recv(partner, theirs)


def _up_and_down(size: int, n: int) -> int:
    return 2 * (size - 1) * n


@dataclass(frozen=True)
class Algorithm:
    """An allreduce and what it costs, by formulas.

    schedule  `(rank, size, x)`
    messages  `(size)`: messages of all ranks, empty ones among them
    busiest   `(size, n)`: items that the busiest rank sends, where the chunks are of equal size
    source    where the formulas stand
    items     `(size, n)`: items that all ranks send for contributions of `n`
    """

    schedule: Callable[[int, int, Any], Schedule]
    messages: Callable[[int], int]
    busiest: Callable[[int, int], int]
    source: str
    items: Callable[[int, int], int] = _up_and_down


def _exponent(size: int) -> int:
    """Of the largest power of two that is no larger than `size`."""
    return size.bit_length() - 1


def _spare(size: int) -> int:
    """Ranks beyond that power of two, which `_folded` lets others do the part of."""
    return size - (1 << _exponent(size))


def _nodes(size: int) -> int:
    return len(range(0, size, width(size)))


def _doubled(rank: int, size: int) -> int:
    """Messages that one rank sends in `recursive_doubling`."""
    if rank >= 2 * _spare(size):
        return _exponent(size)
    return 1 if rank % 2 == 0 else _exponent(size) + 1


def _led(size: int) -> int:
    """Messages that the busiest rank sends in `hierarchical`, the first one of a node."""
    nodes, of_node = _nodes(size), width(size)
    below = [min(of_node, size - node * of_node) - 1 for node in range(nodes)]
    return max(_doubled(node, nodes) + others.bit_length() for node, others in enumerate(below))


def _hierarchical(size: int) -> int:
    nodes = _nodes(size)
    members = nodes - _spare(nodes)
    return 2 * (size - nodes) + 2 * _spare(nodes) + members * _exponent(nodes)


ALLREDUCE: Mapping[str, Algorithm] = {
    "star": Algorithm(
        star,
        messages=lambda p: 2 * (p - 1),
        busiest=lambda p, n: (p - 1) * n,
        source="each rank but one sends n and is sent n",
    ),
    "tree": Algorithm(
        tree,
        messages=lambda p: 2 * (p - 1),
        busiest=lambda p, n: (p - 1).bit_length() * n,
        source="Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), 3.1: log2 p rounds, upwards",
    ),
    "ring": Algorithm(
        ring,
        messages=lambda p: 2 * p * (p - 1),
        busiest=lambda p, n: 2 * (p - 1) * n // p,
        source="Patarasuk and Yuan, JPDC 69 (2009), theorem 1: 2 n (p - 1) / p for each rank",
    ),
    "recursive_doubling": Algorithm(
        recursive_doubling,
        messages=lambda p: 2 * _spare(p) + (p - _spare(p)) * _exponent(p),
        items=lambda p, n: (2 * _spare(p) + (p - _spare(p)) * _exponent(p)) * n,
        busiest=lambda p, n: (_exponent(p) + bool(_spare(p))) * n,
        source="Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), 4.5: log2 p rounds of n",
    ),
    "halving_doubling": Algorithm(
        halving_doubling,
        messages=lambda p: 2 * _spare(p) + 2 * (p - _spare(p)) * _exponent(p),
        busiest=lambda p, n: 2 * (n - n // (p - _spare(p))) + bool(_spare(p)) * n,
        source="Rabenseifner, ICCS 2004, section 4: 2 n (1 - 1 / p) for each rank",
    ),
    "hierarchical": Algorithm(
        hierarchical,
        messages=_hierarchical,
        items=lambda p, n: _hierarchical(p) * n,
        busiest=lambda p, n: _led(p) * n,
        source="n up and down for each rank that leads no node, recursive doubling of the others",
    ),
    "pipelined": Algorithm(
        pipelined,
        messages=lambda p: 2 * (p - 1) * SEGMENTS,
        busiest=lambda p, n: min(p - 1, 2) * n,
        source=f"each rank but one sends n and is sent n, in {SEGMENTS} segments",
    ),
}
"""By name. In each of them all ranks end with the same bits: a sum is formed once, or is formed of
the same two parts at both ranks, and addition commutes."""
