"""A collective among groups of ranks: the operator, where a rank has its data, and its schedule.

Each rank has one buffer, in which what it has before (`x`) and what it must have after (`y`) lie
side by side, or in place over each other. A word of poison stands before, between and behind them,
so that who writes beyond its room is found.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d5test.case import Operator
from d5test.distributed.communicator import Program, advance
from d5test.reference.collectives import Recv, Schedule, Send, Step, within
from d5test.reference.schedules import Body
from d5test.reference.semantics import COLLECTIVES, Layout, Meaning

PAD = 1
"""Elements of poison around what a rank has."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Collective(Operator):
    """A collective among the ranks of one group, or of several at once.

    Input `k` is what rank `k` has before, output `k` what it has after, counted among all ranks.

    collective  a name in `COLLECTIVES`
    algorithm   a name in `SCHEDULES` of it, or `LIBRARY`
    groups      ranks, in their order; whoever is in none takes no part
    counts      of each group, as `Layout` has them
    root        in each group, by its own ranks; from 0 on again where the group is smaller
    in_place    whether `x` and `y` overlap, as the row says
    order       which order of delivery virtual ranks have
    """

    domain = "d5test"
    collective: str
    algorithm: str
    groups: tuple[tuple[int, ...], ...]
    counts: tuple[tuple[int, ...], ...]
    root: int = 0
    in_place: bool = False
    order: int = 0

    @property
    def meaning(self) -> Meaning:
        """Its row."""
        return COLLECTIVES[self.collective]

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Of each group."""
        return tuple(
            Layout(len(group), counts, self.root % len(group))
            for group, counts in zip(self.groups, self.counts, strict=True)
        )

    def forward(self, *arrays: Any) -> Any:
        """What each rank must have after. Sums are formed in any order."""
        results = [x[:0] for x in arrays]
        for group, layout in zip(self.groups, self.layouts, strict=True):
            after = self.meaning.after(layout, [arrays[rank] for rank in group])
            for rank, y in zip(group, after, strict=True):
                results[rank] = y
        return tuple(results)


@dataclass(frozen=True)
class Place:
    """Where a rank stands: in its group, and what it has in its buffer.

    rank      by the group's own count
    members   ranks of the group, by the count of all
    x, y      in the buffer, which has `size` elements
    overlaps  whether what it has before may be overwritten
    """

    rank: int
    members: tuple[int, ...]
    layout: Layout
    x: slice
    y: slice
    size: int
    overlaps: bool


def places(op: Collective) -> dict[int, Place]:
    """By rank, of all that take part."""
    found = {}
    for members, layout in zip(op.groups, op.layouts, strict=True):
        for rank, (have, get) in enumerate(op.meaning.sizes(layout)):
            start_x, start_y = PAD, 2 * PAD + have
            overlaps = op.in_place and op.meaning.overlap is not None
            if overlaps:
                assert op.meaning.overlap is not None
                start_x, start_y = (PAD + at for at in op.meaning.overlap(layout, rank))
            x, y = slice(start_x, start_x + have), slice(start_y, start_y + get)
            found[members[rank]] = Place(
                rank, members, layout, x, y, max(x.stop, y.stop) + PAD,
                overlaps and have > 0 and get > 0,
            )  # fmt: skip
    return found


def program(op: Collective, body: Body, *, clocked: bool = True) -> Program:
    """The schedules of all ranks, on their buffers."""
    spots = places(op)

    def of_rank(rank: int, size: int, buffer: Any) -> Schedule:
        if rank not in spots:
            return
        spot = spots[rank]
        x, y = buffer[spot.x], buffer[spot.y]
        schedule = body(spot.rank, spot.layout, x, y)
        if op.collective == "barrier" and clocked:
            schedule = with_clocks(schedule, spot.rank, y)
        yield from within(schedule, spot.members)

    return of_rank


def with_clocks(schedule: Schedule, rank: int, y: Any) -> Schedule:
    """A schedule of empty messages that carry who has entered, as far as the sender knows.

    `y` is what the rank knows in the end. Nothing but a message that was received orders one
    rank's entry before another's going on: vector clocks (Fidge 1988, Mattern 1989) of one tick.
    """
    known = np.zeros_like(y)
    known[rank] = 1
    heard: int | None = None
    while (steps := advance(schedule, heard)) is not None:
        rooms: list[Any] = []
        carrying: list[Step] = []
        for step in steps:
            if isinstance(step, Send):
                carrying.append(replace(step, data=known.copy()))
            else:
                assert isinstance(step, Recv)
                rooms.append(np.zeros_like(y))
                carrying.append(replace(step, into=rooms[-1]))
        heard = yield tuple(carrying)
        for room in rooms:
            np.maximum(known, room, out=known)
    y[...] = known
