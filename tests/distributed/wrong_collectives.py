"""Collectives that are wrong on purpose, each in one way in which real ones were; and honest ones.

Each is called as a schedule of `d5test.reference.schedules` is.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from d5test.distributed.communicator import Reduced, Virtual
from d5test.reference import rooted, rootless
from d5test.reference.collectives import (
    ANY,
    SEGMENTS,
    Recv,
    Schedule,
    Send,
    broadcast,
    reduce,
    within,
)
from d5test.reference.schedules import SCHEDULES, Body, Scheduled
from d5test.reference.semantics import Layout, blocks


def to_the_next(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A scatter of blocks of one size that gives each rank the next one's."""
    if len(set(layout.counts)) == 1 and rank == layout.root:
        x = np.roll(x, -layout.counts[0])
    yield from rooted.linear_scatter(rank, layout, x, y)


def gathered_backwards(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A gather whose root fills its blocks in the order of the last rank first."""
    yield from rooted.linear_gather(rank, layout, x, y)
    if len(set(layout.counts)) == 1 and rank == layout.root:
        y[...] = np.concatenate(blocks(y, layout.counts)[::-1])


def rank_0_for_root(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A reduce to rank 0, whoever the root is."""
    part = x.copy()
    yield from reduce(rank, layout.size, part)
    if rank == layout.root:
        y[...] = part


def root_as_a_rank_of_all(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A broadcast from rank 0, which has nothing if it is not the root."""
    if rank == 0:
        y[...] = x if x.size == y.size else 0
    yield from broadcast(rank, layout.size, y)


def last_element_lost(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An allgather that places all but its last element."""
    whole = np.empty_like(y)
    yield from rootless.bruck_allgather(rank, layout, x.copy(), whole)
    y[:-1] = whole[:-1]


def own_block_lost(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An all-to-all of messages alone: what a rank has for itself stays where it is."""
    steps = rootless.pairwise_all_to_all(rank, layout, x, y)
    own = blocks(y, layout.column(rank))[rank]
    before = own.copy()
    for step in steps:
        own[...] = before
        yield step
    own[...] = before


def own_block_not_placed(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A gather whose root hears from the others alone."""
    if rank != layout.root:
        yield Send(layout.root, x)
        return
    parts = blocks(y, layout.counts)
    yield tuple(Recv(other, part) for other, part in enumerate(parts) if other != rank)


def counted_twice(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A reduce-scatter that adds a rank's own contribution once too often."""
    own = blocks(x, layout.counts)[rank].copy()
    yield from rootless.ring_reduce_scatter(rank, layout, x, y)
    if layout.size > 1:
        y += own


def left_out(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A reduce that forgets what the last rank has."""
    given = np.zeros_like(x) if rank == layout.size - 1 and layout.size > 1 else x
    yield from rooted.binomial_reduce(rank, layout, given, y)


def too_early(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An all-to-all that in place receives where it has yet to send from."""
    size = layout.size
    leaving, coming = blocks(x, layout.row(rank)), blocks(y, layout.column(rank))
    coming[rank][...] = leaving[rank]
    for d in range(1, size):
        to, source = (rank + d) % size, (rank - d) % size
        yield Send(to, leaving[to]), Recv(source, coming[source])


def shared_room(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A reduce-scatter that in place writes its sum while others' parts stand there."""
    parts, size = blocks(x, layout.counts), layout.size
    y[...] = parts[rank]
    for d in range(1, size):
        to, room = (rank + d) % size, np.empty_like(y)
        yield Send(to, parts[to]), Recv((rank - d) % size, room)
        y += room


def equal_counts(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An allgather that takes all blocks for as long as its own."""
    yield from rootless.ring_allgather(rank, replace(layout, counts=(len(x),) * layout.size), x, y)


def rows_for_columns(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An all-to-all that takes what it has for the others for what they have for it."""
    leaving = blocks(x.copy(), layout.row(rank))
    counts = layout.row(rank) if sum(layout.row(rank)) == len(y) else layout.column(rank)
    coming, size = blocks(y, counts), layout.size
    coming[rank][: len(leaving[rank])] = leaving[rank][: len(coming[rank])]
    for d in range(1, size):
        to, source = (rank + d) % size, (rank - d) % size
        yield Send(to, leaving[to]), Recv(source, coming[source])


def one_round_less(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A dissemination barrier without its last round."""
    distance, size = 1, layout.size
    while 2 * distance < size:
        yield Send((rank + distance) % size, x), Recv((rank - distance) % size, x)
        distance <<= 1


def nobody_is_told(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A barrier in which all tell rank 0, and go on."""
    yield from reduce(rank, layout.size, x)


def open_door(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A barrier at which nobody waits."""
    yield ()


def send_first(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An exchange whose ranks all send before they receive: it needs a buffer."""
    for steps in rootless.exchange(rank, layout, x, y):
        assert isinstance(steps, tuple)
        yield from steps


def all_in_turn(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An allgather in a ring whose ranks all send before they receive."""
    for steps in rootless.ring_allgather(rank, layout, x, y):
        assert isinstance(steps, tuple)
        yield from steps


def sums_where_it_is_given(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A reduce that adds into what it was given."""
    ranks = [(layout.root + v) % layout.size for v in range(layout.size)]
    yield from within(reduce(ranks.index(rank), layout.size, x), ranks)
    if rank == layout.root:
        y[...] = x


def beyond_its_room(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A broadcast that writes one element too many."""
    yield from rooted.binomial_broadcast(rank, layout, x, y)
    y.base[-1] = 7


def last_segment_lost(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A pipeline that leaves its last segment out."""
    most = len(y) - len(np.array_split(y, SEGMENTS)[-1])
    given = x[:most] if rank == layout.root else x
    yield from rooted.chain_broadcast(rank, layout, given, y[:most])


def powers_of_two_only(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Bruck's allgather whose last round sends as much as it has, as if for a power of two."""
    lacking = layout.size & (layout.size - 1)
    yield from rootless.bruck_allgather(rank, layout, x, y)
    if lacking and layout.size > 2:
        parts = blocks(y, layout.counts)
        parts[rank - 1][...] = 0


def other_way_round(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An exchange in the other direction, where counts let it."""
    if len(set(layout.counts)) == 1:
        layout = replace(layout, root=-layout.root % layout.size)
    yield from rootless.exchange(rank, layout, x, y)


def coarse(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A sum with half the bits of its dtype."""
    yield from rootless.ring_reduce_scatter(rank, layout, x, y)
    if layout.size > 1:
        y[...] = y.astype(np.float32 if y.dtype == np.float64 else np.float16)


def own_order(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """An allreduce in which each rank adds in an order of its own."""
    size, mine = layout.size, x.copy()
    parts = [mine if other == rank else np.empty_like(x) for other in range(size)]
    others = [other for other in range(size) if other != rank]
    yield *(Send(o, mine) for o in others), *(Recv(o, parts[o]) for o in others)
    total = parts[rank]
    for d in range(1, size):
        total = total + parts[(rank + d) % size]
    y[...] = total


def sent_twice(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """A broadcast that is right, and hands out everything twice."""
    for steps in rooted.binomial_broadcast(rank, layout, x, y):
        yield steps
        yield steps


def gathered_and_handed_out(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Honest: an allgather by a gather to rank 0 and a broadcast."""
    whole = np.empty_like(y)
    part = whole if rank == 0 else whole[:0]
    yield from rooted.linear_gather(rank, replace(layout, root=0), x.copy(), part)
    yield from broadcast(rank, layout.size, whole)
    y[...] = whole


def all_at_once(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Honest: an all-to-all whose messages are all under way at the same time."""
    leaving, coming = blocks(x.copy(), layout.row(rank)), blocks(y, layout.column(rank))
    coming[rank][...] = leaving[rank]
    others = [other for other in range(layout.size) if other != rank]
    yield *(Recv(o, coming[o]) for o in others), *(Send(o, leaving[o]) for o in others)


def backwards(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Honest: a reduce whose root adds the last rank first."""
    if rank != layout.root:
        yield Send(layout.root, x)
        return
    total, room = x.copy(), np.empty_like(x)
    for other in reversed(range(layout.size)):
        if other != rank:
            yield Recv(other, room)
            total = room + total
    y[...] = total


def through_rank_0(rank: int, layout: Layout, x: Any, y: Any) -> Schedule:
    """Honest: a barrier in which rank 0 hears of all, in any order, and tells them."""
    if rank:
        yield Send(0, x)
        yield Recv(0, x)
        return
    coming = set(range(1, layout.size))
    while coming:
        coming.remove((yield Recv(ANY, x)))
    yield tuple(Send(other, x) for other in range(1, layout.size))


def planted(name: str, algorithm: str, body: Body) -> Mapping[str, Mapping[str, Scheduled]]:
    """All schedules, one of them another."""
    rows = SCHEDULES[name]
    return {**SCHEDULES, name: {**rows, algorithm: replace(rows[algorithm], body=body)}}


class Library(Virtual):
    """Virtual ranks with collectives of their own, which are right: those of the table."""

    def dtypes(self, subject: str) -> tuple[str, ...]:
        return super().dtypes("ring")

    def collective(self, op: Any, places: Any, buffers: Any) -> Reduced:
        given = [
            buffer[places[rank].x] if rank in places else buffer[:0]
            for rank, buffer in enumerate(buffers)
        ]
        results = tuple(buffer.copy() for buffer in buffers)
        for rank, y in enumerate(self.after(op, given)):
            if rank in places:
                results[rank][places[rank].y] = y
        return Reduced(results)

    def after(self, op: Any, given: Any) -> Any:
        """What the ranks have."""
        return op.forward(*given)


class SortedGroups(Library):
    """Whose groups are in the order of all ranks, whatever was asked for."""

    def after(self, op: Any, given: Any) -> Any:
        groups = tuple(tuple(sorted(group)) for group in op.groups)
        alike = all(len(set(counts)) == 1 for counts in op.counts)
        return op.with_(groups=groups).forward(*given) if alike else op.forward(*given)


class GroupsMixedUp(Library):
    """In which the second group gets what the first one has."""

    def after(self, op: Any, given: Any) -> Any:
        results = list(op.forward(*given))
        if len(op.groups) > 1 and len(set(map(len, op.groups))) == 1:
            first, second = op.groups
            for one, other in zip(first, second, strict=True):
                results[other] = results[one]
        return results


class ThroughFloats(Library):
    """Which moves whole numbers as floats of 64 bits."""

    def after(self, op: Any, given: Any) -> Any:
        return [y.astype(np.float64).astype(y.dtype) for y in op.forward(*given)]


class FlushesToZero(Library):
    """Which loses the sign of a zero on the way."""

    def after(self, op: Any, given: Any) -> Any:
        return [np.where(y == 0, np.zeros_like(y), y) for y in op.forward(*given)]
