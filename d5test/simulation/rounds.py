"""Our allreduces on any number of ranks: what `events` says message by message, said in arrays.

Requirements: the same times as `d5test.simulation.events` has for the schedules of the same name.
All times are arrays (ranks, sizes): many sizes of contributions are simulated at once.

No time here is a formula of a cost. What saves time is that a round is a function of times that
knows only maxima and sums: if all times are later by c, so are all results. So rounds that repeat
are taken until one makes all times later by the same, and those that remain are that shift again.
In a ring all ranks are alike, and one of them is simulated, its neighbours being itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.reference.collectives import SEGMENTS, width
from d5test.simulation.machine import Machine

Times = NDArray[np.float64]
Ranks = NDArray[np.intp]
SAME = 1e-12
"""Relative difference of two shifts that are one, but for rounding errors."""


class Fleet:
    """Ranks that start together: when the core, the port out and the port in of each is free.

    items  (sizes,), elements of a contribution
    """

    def __init__(self, size: int, items: Any, machine: Machine, itemsize: int = 4) -> None:
        self.size, self.machine, self.itemsize = size, machine, itemsize
        self.items = np.asarray(items, np.int64)
        self.core, self.out, self.into = np.zeros((3, size, len(self.items)))

    @property
    def every(self) -> Ranks:
        """All ranks."""
        return np.arange(self.size)

    def wire(self, items: Any) -> Any:
        """Seconds for so many items to pass a port."""
        return self.machine.wire(np.asarray(items) * self.itemsize)

    def busy(self, items: Any) -> Any:
        """Seconds for which these keep a port."""
        return np.maximum(self.machine.gap, self.wire(items))

    def exchange(self, senders: Ranks, receivers: Ranks, items: Any) -> None:
        """One step: sender i sends its `items[i]` to receiver i. Who is both does both at once."""
        machine, wire, busy = self.machine, self.wire(items), self.busy(items)
        core = self.core[senders] + machine.overhead
        start = np.maximum(core, self.out[senders])
        self.out[senders] = start + busy
        self.core[senders] = core
        there = np.maximum(start + machine.latency, self.into[receivers])
        self.into[receivers] = there + busy
        self.core[receivers] = np.maximum(self.core[receivers] + machine.overhead, there + wire)
        self.core[senders] = np.maximum(self.core[senders], start + wire)

    def added(self, items: Any) -> Any:
        """Seconds for so many items to be added to others."""
        return self.machine.added(np.asarray(items) * self.itemsize)

    def add(self, ranks: Ranks, items: Any) -> None:
        """Add so many items to others."""
        self.core[ranks] += self.added(items)


def repeat(fleet: Fleet, step: Callable[[], None], times: int) -> None:
    """Take a step so often, that repeats."""
    for done in range(1, times + 1):
        before = np.concatenate([fleet.core, fleet.out, fleet.into])
        step()
        shift = np.concatenate([fleet.core, fleet.out, fleet.into]) - before
        if np.allclose(shift, shift[:1], rtol=SAME, atol=0):
            for part in (fleet.core, fleet.out, fleet.into):
                part += (times - done) * shift[0]
            return


def queue(ready: Times, cost: Any, start: Any) -> Times:
    """When a server that takes jobs one after another is done with each. Lindley 1952.

    `ready` (jobs, sizes): from when on each can be done; `start`: from when on the server is free.
    """
    number = np.arange(len(ready))[:, None]
    begun = np.maximum(np.maximum.accumulate(ready - number * cost, axis=0), start)
    return np.asarray(begun + (number + 1) * cost)


def star(fleet: Fleet) -> None:
    """Rank 0 takes contributions one after another, and sends the sum one after another."""
    machine, n = fleet.machine, fleet.items
    wire, busy, o = fleet.wire(n), fleet.busy(n), fleet.machine.overhead
    others, core, out, into = fleet.every[1:], fleet.core, fleet.out, fleet.into
    core[others] += o
    start = np.maximum(core[others], out[others])
    out[others] = start + busy
    core[others] = start + wire
    ends = queue(start + machine.latency, busy, into[0])
    added = fleet.added(n)
    # a sum, and the overhead of the next receive; after the last there is none
    sums = queue(ends - busy + wire, added + o, core[0] + o) - o
    posted = sums[-1] + o * np.arange(1, fleet.size)[:, None]
    leaving = queue(posted, busy, out[0]) - busy
    core[0] = np.maximum(posted[-1], leaving[-1] + wire)
    core[others] = np.maximum(core[others] + o, leaving + machine.latency + wire)


def reduce(fleet: Fleet, place: Ranks, count: Ranks) -> None:
    """Up binomial trees. Each rank's place in its tree, and the ranks of that tree."""
    bit = 1
    while bit < count.max():
        parents = np.flatnonzero((place % (2 * bit) == 0) & (place + bit < count))
        fleet.exchange(parents + bit, parents, fleet.items)
        fleet.add(parents, fleet.items)
        bit <<= 1


def broadcast(fleet: Fleet, place: Ranks, count: Ranks) -> None:
    """Down binomial trees."""
    bit = 1 << (int(count.max()) - 1).bit_length()
    while bit > 1:
        bit >>= 1
        parents = np.flatnonzero((place % (2 * bit) == 0) & (place + bit < count))
        fleet.exchange(parents, parents + bit, fleet.items)


def tree(fleet: Fleet) -> None:
    """One binomial tree of all ranks."""
    count = np.full(fleet.size, fleet.size)
    reduce(fleet, fleet.every, count)
    broadcast(fleet, fleet.every, count)


def ring(fleet: Fleet) -> None:
    """One rank for all, with the largest chunk in every step.

    Where chunks differ and ranks wait for messages, the last rank is done when it would be if all
    were as large as the largest. It is not later: no time here falls when a chunk grows. It is not
    earlier: that chunk is sent 2 (p - 1) times, each time after it has come and was added.

    Where the overhead of a receive outlasts its message, no rank waits for any other; the last one
    adds all but one of the smallest chunks. Sums of two neighbours differ by an item at most: only
    between the two cases, within the time of its addition, is each rank simulated. So it is
    where `gap` is above `alpha`: a port may be what they wait for then.
    """
    steps, machine = fleet.size - 1, fleet.machine
    one = Fleet(1, fleet.items, machine, fleet.itemsize)
    least, unequal = fleet.items // fleet.size, fleet.items % fleet.size
    chunk = least + (unequal > 0)
    item = fleet.added(chunk) - fleet.added(least)
    spare = machine.overhead - (machine.latency + fleet.wire(chunk))
    waiting, busy = spare <= 0, spare >= item
    if np.any(unequal * ((machine.gap > machine.alpha) | ~(waiting | busy))):
        _unequal_ring(fleet)
        return
    added = np.where(waiting, chunk, least)

    def hand_out() -> None:
        one.exchange(one.every, one.every, chunk)

    def add_up() -> None:
        hand_out()
        one.add(one.every, added)

    repeat(one, add_up, steps)
    one.core += np.where(waiting, 0, unequal * item)
    repeat(one, hand_out, steps)
    fleet.core[:] = one.core


def _unequal_ring(fleet: Fleet) -> None:
    """Step by step, chunk by chunk: p^2 messages."""
    size, rank = fleet.size, fleet.every
    right = (rank + 1) % size
    chunks = fleet.items // size + (rank[:, None] < fleet.items % size)
    for step in range(2 * (size - 1)):
        sent = chunks[(rank - step) % size]
        fleet.exchange(rank, right, sent)
        if step < size - 1:
            fleet.add(right, sent)


Core = Callable[[Fleet, Ranks], None]
"""What a power of two of ranks do."""


def folded(fleet: Fleet, ranks: Ranks, core: Core) -> None:
    """Any number of ranks: of the first few, each even one lets its neighbour do its part."""
    spare = len(ranks) - (1 << len(ranks).bit_length() - 1)
    idle, twofold = ranks[: 2 * spare : 2], ranks[1 : 2 * spare : 2]
    fleet.exchange(idle, twofold, fleet.items)
    fleet.add(twofold, fleet.items)
    core(fleet, np.concatenate([twofold, ranks[2 * spare :]]))
    fleet.exchange(twofold, idle, fleet.items)


def doubling(fleet: Fleet, ranks: Ranks) -> None:
    """All is exchanged at distances 1, 2, 4, ..."""
    member, bit = np.arange(len(ranks)), 1
    while bit < len(ranks):
        fleet.exchange(ranks, ranks[member ^ bit], fleet.items)
        fleet.add(ranks, fleet.items)
        bit <<= 1


def halving(fleet: Fleet, ranks: Ranks) -> None:
    """Halves are exchanged, then quarters, ..., and back."""
    member, bit, halvings = np.arange(len(ranks)), len(ranks) >> 1, []
    low = np.zeros((len(ranks), len(fleet.items)), np.int64)
    high = low + fleet.items
    while bit:
        middle, upper = (low + high) // 2, (member & bit != 0)[:, None]
        low, high, theirs = (
            np.where(upper, middle, low),
            np.where(upper, high, middle),
            np.where(upper, middle - low, high - middle),
        )
        mine, partners = high - low, ranks[member ^ bit]
        fleet.exchange(ranks, partners, theirs)
        fleet.add(ranks, mine)
        halvings.append((partners, mine))
        bit >>= 1
    for partners, mine in reversed(halvings):
        fleet.exchange(ranks, partners, mine)


def recursive_doubling(fleet: Fleet) -> None:
    """Of all ranks."""
    folded(fleet, fleet.every, doubling)


def halving_doubling(fleet: Fleet) -> None:
    """Of all ranks."""
    folded(fleet, fleet.every, halving)


def hierarchical(fleet: Fleet) -> None:
    """Trees in nodes, recursive doubling of their first ranks."""
    of_node = width(fleet.size)
    place = fleet.every % of_node
    count = np.minimum(of_node, fleet.size - fleet.every + place)
    reduce(fleet, place, count)
    folded(fleet, fleet.every[::of_node], doubling)
    broadcast(fleet, place, count)


def pipelined(fleet: Fleet) -> None:
    """Segments along the chain of ranks to rank 0, and back."""
    parts = fleet.core, fleet.out, fleet.into
    for order, adds in ((fleet.every[::-1], True), (fleet.every, False)):
        states = np.stack([part[order] for part in parts], axis=1)
        _along(fleet, states, adds)
        for number, part in enumerate(parts):
            part[order] = states[:, number]


def _along(fleet: Fleet, states: Times, adds: bool) -> None:
    """Take ranks in the order of a chain from what they were (ranks, 3, sizes) to what they are.

    Where a rank has been free, its overhead paid, since before anything comes, only what comes
    decides; so once a rank is later than the one before by one shift in all times, the ranks
    between it and the last are, too.
    """
    last, rank = fleet.size - 1, 0
    free = np.maximum.accumulate(states.max(axis=1)[::-1], axis=0)[::-1]
    leaving = previous = None
    entered = np.full((2, len(fleet.items)), -np.inf)
    while rank <= last:
        if leaving is not None:
            entered = np.stack([entered[1], leaving[0]])
        states[rank], leaving = _pass_on(fleet, states[rank], leaving, rank == last, adds)
        now = np.concatenate([states[rank], leaving])
        if previous is not None and 1 < rank < last - 1:
            shift = now - previous
            alike = np.allclose(shift, shift[:1], rtol=SAME, atol=0)
            ready = free[rank - 1] + fleet.machine.overhead
            if alike and bool((ready <= entered[0]).all()):
                steps = np.arange(1, last - rank)[:, None, None]
                states[rank + 1 : last] = states[rank] + steps * shift[0]
                leaving = leaving + (last - 1 - rank) * shift[0]
                rank = last - 1
        previous, rank = now, rank + 1


def _pass_on(
    fleet: Fleet, state: Times, coming: Times | None, last: bool, adds: bool
) -> tuple[Times, Times]:
    """One rank of a chain, and when each of its segments leaves.

    `coming`: when each segment leaves the rank before; None at the first rank.
    """
    machine, n = fleet.machine, fleet.items
    core, out, into = state
    segments = [n // SEGMENTS + (i < n % SEGMENTS) for i in range(SEGMENTS)]
    leaving = np.zeros((SEGMENTS, len(n)))
    for step in range(SEGMENTS + 1):
        sent = core
        if not last and step > 0:
            wire, core = fleet.wire(segments[step - 1]), core + machine.overhead
            leaving[step - 1] = start = np.maximum(core, out)
            out, sent = start + fleet.busy(segments[step - 1]), start + wire
        if coming is not None and step < SEGMENTS:
            there = np.maximum(coming[step] + machine.latency, into)
            into = there + fleet.busy(segments[step])
            core = np.maximum(core + machine.overhead, there + fleet.wire(segments[step]))
        core = np.maximum(core, sent)
        if adds and coming is not None and step < SEGMENTS:
            core = core + fleet.added(segments[step])
    return np.stack([core, out, into]), leaving


ROUNDS: Mapping[str, Callable[[Fleet], None]] = {
    "star": star,
    "tree": tree,
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "halving_doubling": halving_doubling,
    "hierarchical": hierarchical,
    "pipelined": pipelined,
}
"""By the names of `d5test.reference.collectives.ALLREDUCE`."""


def seconds(algorithm: str, size: int, items: Any, machine: Machine, itemsize: int = 4) -> Times:
    """Until the last of `size` ranks is done, for each number of items of a contribution."""
    fleet = Fleet(size, items, machine, itemsize)
    if size > 1:
        ROUNDS[algorithm](fleet)
    return np.asarray(fleet.core.max(axis=0))
