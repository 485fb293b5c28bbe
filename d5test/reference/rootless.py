"""Collectives in which all ranks do the same as schedules: allgather, all-to-all, sums, barriers.

A schedule is called with a rank, the layout, `x` and `y`. It leaves `x` as it is, unless `x` and
`y` overlap: in place, where `d5test.reference.semantics` says so.
"""

from typing import Any

import numpy as np

from d5test.reference.collectives import Algorithm, Recv, Schedule, Send, broadcast, reduce
from d5test.reference.semantics import Layout, blocks, starts


def ring_allgather(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Each block goes round. Thakur, Rabenseifner and Gropp 2005, 4.1."""
    parts, size = blocks(y, layout.counts), layout.size
    parts[rank][...] = x
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, parts[rank - step]), Recv(left, parts[left - step])


def doubling_allgather(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """All that is known is exchanged at distances 1, 2, 4, ... Thakur et al. 2005, 4.1.

    For any number of ranks: of the first few, each even one lets its neighbour do its part.
    """
    fold = _Folded(rank, layout)
    parts = blocks(y, layout.counts)
    if fold.idle:
        yield Send(rank + 1, x)
        yield Recv(rank + 1, y)
        return
    parts[rank][...] = x
    if fold.twofold:
        yield Recv(rank - 1, parts[rank - 1])
    bit = 1
    while bit < fold.members:
        partner, mine = fold.rank_of(fold.member ^ bit), fold.member & -bit
        yield Send(partner, fold.part(y, mine, bit)), Recv(partner, fold.part(y, mine ^ bit, bit))
        bit <<= 1
    if fold.twofold:
        yield Send(rank - 1, y)


def bruck_allgather(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """At distances 1, 2, 4, ... all the blocks that the other lacks. Bruck et al. 1997, section 4.

    In ceil(log2 p) rounds for any number of ranks p. Blocks are held from the rank's own on.
    """
    size = layout.size
    ranks = [(rank + d) % size for d in range(size)]
    edges = starts([layout.counts[other] for other in ranks])
    held, have = np.empty_like(y), 1
    held[: edges[1]] = x
    while have < size:
        more = min(have, size - have)
        room = held[edges[have] : edges[have + more]]
        yield Send((rank - have) % size, held[: edges[more]]), Recv((rank + have) % size, room)
        have += more
    parts = blocks(y, layout.counts)
    for other, start, end in zip(ranks, edges, edges[1:], strict=False):
        parts[other][...] = held[start:end]


class _Folded:
    """Which of a power of two of members a rank is, and the blocks that each stands for.

    idle     its neighbour does its part
    twofold  it does that of the rank before it
    """

    def __init__(self, rank: int, layout: Layout) -> None:
        self.members = 1 << layout.size.bit_length() - 1
        self.pairs = layout.size - self.members
        paired = rank < 2 * self.pairs
        self.idle, self.twofold = paired and rank % 2 == 0, paired and rank % 2 == 1
        self.member = rank // 2 if paired else rank - self.pairs
        self.edges = starts(layout.counts)

    def rank_of(self, member: int) -> int:
        """The rank that is a member."""
        return 2 * member + 1 if member < self.pairs else member + self.pairs

    def part(self, x: Any, member: int, members: int) -> Any:
        """The blocks of so many members from one on."""
        first, last = (m + min(m, self.pairs) for m in (member, member + members))
        return x[self.edges[first] : self.edges[last]]


def pairwise_all_to_all(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Each pair by itself, at distances 1, 2, 3, ... Thakur, Rabenseifner and Gropp 2005, 4.3."""
    size = layout.size
    leaving, coming = blocks(x.copy(), layout.row(rank)), blocks(y, layout.column(rank))
    coming[rank][...] = leaving[rank]
    for d in range(1, size):
        to, source = (rank + d) % size, (rank - d) % size
        yield Send(to, leaving[to]), Recv(source, coming[source])


def bruck_all_to_all(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Each block by the bits of its distance: 1, 2, 4, ... Bruck et al. 1997, section 3 (index).

    In ceil(log2 p) rounds. `held[d]` is a block on its way over a distance of d.
    """
    size = layout.size
    parts = blocks(x.copy(), layout.row(rank))
    held = {d: parts[(rank + d) % size] for d in range(size)}
    bit = 1
    while bit < size:
        moving = [d for d in range(size) if d & bit]
        # a block that comes now has gone over the bits so far
        origins = {d: (rank - (d & (2 * bit - 1))) % size for d in moving}
        counts = [layout.row(origins[d])[(origins[d] + d) % size] for d in moving]
        leaving = np.concatenate([held[d] for d in moving])
        room = np.empty_like(x, shape=sum(counts))
        yield Send((rank + bit) % size, leaving), Recv((rank - bit) % size, room)
        held.update(zip(moving, blocks(room, counts), strict=True))
        bit <<= 1
    for source, place in enumerate(blocks(y, layout.column(rank))):
        place[...] = held[(rank - source) % size]


def exchange(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Each rank sends to the one that is `root` further, and receives at the same time."""
    to, source = (rank + layout.root) % layout.size, (rank - layout.root) % layout.size
    if to == rank:
        y[...] = x
    else:
        yield Send(to, x.copy() if np.shares_memory(x, y) else x), Recv(source, y)


def by_allreduce(rank: int, layout: Layout, x: Any, y: Any, *, algorithm: Algorithm) -> Schedule:
    """One of `ALLREDUCE`, which work in place."""
    y[...] = x
    yield from algorithm.schedule(rank, layout.size, y)


def ring_reduce_scatter(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Sums go round, to the rank whose block they are. Patarasuk and Yuan 2009, section 4."""
    parts, size = blocks(x, layout.counts), layout.size
    right, left = (rank + 1) % size, (rank - 1) % size
    total = parts[left].copy()
    for step in range(size - 1):
        part = parts[left - step - 1]
        room = np.empty_like(part)
        yield Send(right, total), Recv(left, room)
        total = room + part
    y[...] = total


def pairwise_reduce_scatter(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Each pair by itself, at distances 1, 2, 3, ... Thakur, Rabenseifner and Gropp 2005, 4.4."""
    parts, size = blocks(x, layout.counts), layout.size
    total = parts[rank].copy()
    for d in range(1, size):
        to, room = (rank + d) % size, np.empty_like(total)
        yield Send(to, parts[to]), Recv((rank - d) % size, room)
        total = total + room
    y[...] = total


def halving_reduce_scatter(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Halves are exchanged, then quarters, ... Thakur, Rabenseifner and Gropp 2005, 4.4.

    For any number of ranks, as `doubling_allgather`.
    """
    fold = _Folded(rank, layout)
    if fold.idle:
        yield Send(rank + 1, x)
        yield Recv(rank + 1, y)
        return
    total = x.copy()
    if fold.twofold:
        room = np.empty_like(x)
        yield Recv(rank - 1, room)
        np.add(room, total, out=total)
    bit = fold.members >> 1
    while bit:
        partner, mine = fold.rank_of(fold.member ^ bit), fold.member & -bit
        kept = fold.part(total, mine, bit)
        room = np.empty_like(kept)
        yield Send(partner, fold.part(total, mine ^ bit, bit)), Recv(partner, room)
        np.add(kept, room, out=kept)
        bit >>= 1
    parts = blocks(total, layout.counts)
    if fold.twofold:
        yield Send(rank - 1, parts[rank - 1])
    y[...] = parts[rank]


def dissemination(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A word at distances 1, 2, 4, ... Hensgen, Finkel and Manber 1988."""
    distance, size = 1, layout.size
    while distance < size:
        yield Send((rank + distance) % size, x), Recv((rank - distance) % size, x)
        distance <<= 1


def tree_barrier(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A word up a binomial tree, and one down."""
    yield from reduce(rank, layout.size, x)
    yield from broadcast(rank, layout.size, x)
