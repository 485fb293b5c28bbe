"""Collectives with a root as schedules: broadcast, scatter, gather, reduce.

As in `d5test.reference.rootless`. Ranks are counted from the root on.
"""

from typing import Any

import numpy as np

from d5test.reference.collectives import (
    Recv,
    Schedule,
    Send,
    broadcast,
    chain,
    reduce,
    width,
    within,
)
from d5test.reference.rootless import ring_allgather, ring_reduce_scatter
from d5test.reference.semantics import Layout, blocks, starts


def from_root(layout: Layout) -> list[int]:
    """The ranks in a circle, the root first."""
    return [(layout.root + v) % layout.size for v in range(layout.size)]


def equally(layout: Layout, n: int) -> Layout:
    """Counts of `n` items in blocks that are as equal as can be."""
    p = layout.size
    return Layout(p, tuple(n // p + (rank < n % p) for rank in range(p)), layout.root)


def binomial_broadcast(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Along a binomial tree. Thakur, Rabenseifner and Gropp 2005, 4.2."""
    ranks = from_root(layout)
    if rank == layout.root:
        y[...] = x
    yield from within(broadcast(ranks.index(rank), layout.size, y), ranks)


def chain_broadcast(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """In segments, from each rank to the next one."""
    ranks = from_root(layout)
    if rank == layout.root:
        y[...] = x
    yield from within(chain(ranks.index(rank), layout.size, y), ranks)


def hierarchical_broadcast(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """To the first rank of each node, and from there in its node, along binomial trees."""
    ranks, of_node = from_root(layout), width(layout.size)
    node, place = divmod(ranks.index(rank), of_node)
    leaders, members = ranks[::of_node], ranks[node * of_node : (node + 1) * of_node]
    if rank == layout.root:
        y[...] = x
    if place == 0:
        yield from within(broadcast(node, len(leaders), y), leaders)
    yield from within(broadcast(place, len(members), y), members)


def scattered_broadcast(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Scattered along a binomial tree, then gathered in a ring. Thakur et al. 2005, 4.2.

    Barnett et al. 1994, named after van de Geijn.
    """
    equal = equally(layout, len(y))
    mine = blocks(y, equal.counts)[rank]
    yield from binomial_scatter(rank, equal, x, mine)
    yield from ring_allgather(rank, equal, mine, y)


def linear_scatter(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """The root sends each rank its block."""
    if rank != layout.root:
        yield Recv(layout.root, y)
        return
    parts = blocks(x, layout.counts)
    y[...] = parts[rank]
    yield tuple(Send(other, part) for other, part in enumerate(parts) if other != rank)


def linear_gather(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Each rank sends the root its block."""
    if rank != layout.root:
        yield Send(layout.root, x)
        return
    parts = blocks(y, layout.counts)
    parts[rank][...] = x
    yield tuple(Recv(other, part) for other, part in enumerate(parts) if other != rank)


class _Subtree:
    """What a rank of a binomial tree holds for those below it, and for itself.

    `place` is the rank counted from the root, `bit` the distance to the one above it.
    """

    def __init__(self, rank: int, layout: Layout, like: Any) -> None:
        self.ranks, self.size = from_root(layout), layout.size
        self.place = v = self.ranks.index(rank)
        self.bit = v & -v if v else 1 << (layout.size - 1).bit_length()
        below = self.ranks[v : v + self.bit]
        self.edges = starts([layout.counts[other] for other in below])
        self.held = np.empty_like(like, shape=self.edges[-1])

    def part(self, place: int, places: int) -> Any:
        """What is held for so many ranks from a place on."""
        first = place - self.place
        last = min(first + places, len(self.edges) - 1)
        return self.held[self.edges[first] : self.edges[last]]


def binomial_scatter(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Halves of what is left, along a binomial tree. Thakur, Rabenseifner and Gropp 2005, 3.1."""
    tree = _Subtree(rank, layout, y)
    bit, ranks = tree.bit, tree.ranks
    if tree.place:
        yield Recv(ranks[tree.place - bit], tree.held)
    else:
        parts = blocks(x, layout.counts)
        tree.held[...] = np.concatenate([parts[other] for other in ranks])
    while bit > 1:
        bit >>= 1
        if (child := tree.place + bit) < tree.size:
            yield Send(ranks[child], tree.part(child, bit))
    y[...] = tree.part(tree.place, 1)


def binomial_gather(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """As `binomial_scatter`, upwards."""
    tree = _Subtree(rank, layout, x)
    bit, ranks = 1, tree.ranks
    tree.part(tree.place, 1)[...] = x
    while bit < tree.bit:
        if (child := tree.place + bit) < tree.size:
            yield Recv(ranks[child], tree.part(child, bit))
        bit <<= 1
    if tree.place:
        yield Send(ranks[tree.place - bit], tree.held)
        return
    parts = blocks(y, layout.counts)
    for place, other in enumerate(ranks):
        parts[other][...] = tree.part(place, 1)


def binomial_reduce(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Along a binomial tree. Thakur, Rabenseifner and Gropp 2005, 4.4."""
    ranks = from_root(layout)
    part = y if rank == layout.root else np.empty_like(x)
    part[...] = x
    yield from within(reduce(ranks.index(rank), layout.size, part), ranks)


def scattered_reduce(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Scattered sums, gathered along a binomial tree. Rabenseifner 2004; Thakur et al. 2005, 4.4.

    The sums are formed in a ring, which suits any number of ranks.
    """
    equal = equally(layout, len(x))
    mine = np.empty_like(x, shape=equal.counts[rank])
    yield from ring_reduce_scatter(rank, equal, x, mine)
    yield from binomial_gather(rank, equal, mine, y)
