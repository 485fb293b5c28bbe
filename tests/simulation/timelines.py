"""Timelines by hand: schedules on 2 to 4 ranks, and when each rank is done."""

from dataclasses import dataclass
from typing import Any

from d5test.reference.collectives import ALLREDUCE, Recv, Schedule, Send
from d5test.simulation.machine import Links, Machine

LOGGP = Machine(latency=5, per_byte=1, addition=0.5, overhead=1)
"""A message of k bytes at an idle port: 1 + 5 + k + 1; a sum of k bytes: k / 2."""
SPACED = Machine(latency=5, per_byte=1, addition=0.5, overhead=1, gap=20)


def one(rank: int, size: int, x: Any) -> Schedule:
    yield Send(1, x) if rank == 0 else Recv(0, x)


def both(rank: int, size: int, x: Any) -> Schedule:
    """Rank 0 sends to 1 and to 2 at once."""
    yield (Send(1, x), Send(2, x)) if rank == 0 else Recv(0, x)


def across(rank: int, size: int, x: Any) -> Schedule:
    """Ranks 0 and 1 send to 2 and 3."""
    yield Send(rank + 2, x) if rank < 2 else Recv(rank - 2, x)


@dataclass(frozen=True)
class ByHand:
    """`items` are of 4 bytes."""

    name: str
    program: Any
    size: int
    items: int
    finish: tuple[float, ...]
    machine: Machine = LOGGP
    links: Links | None = None


def _row(name: str, size: int, items: int, *finish: float) -> ByHand:
    return ByHand(name, ALLREDUCE[name].schedule, size, items, finish)


TIMELINES = (
    # sent: 1 + 8; come: 1 + 5 + 8 + 1
    ByHand("one message", one, 2, 2, (9, 15)),
    # both leave at 1, are at the port at 6, in it until 14 and 22; sums: 15 to 19, 23 to 27;
    # sent from 28 to 36 and, the port being busy, to 44
    _row("star", 3, 2, 44, 42, 50),
    # chunks of 4 bytes: 1 + 5 + 4 + 1 and 2 for the sum, then 11 more
    _row("ring", 2, 2, 24, 24),
    # one item, and an empty chunk, which costs 7: rank 1 has the sum at 13, sends it until 18
    _row("ring", 2, 1, 24, 18),
    # twice 15 and 4
    _row("recursive_doubling", 4, 2, 38, 38, 38, 38),
    # 8 bytes: 15 + 4, 4 bytes: 11 + 2; back 11, 15
    _row("halving_doubling", 4, 4, 58, 58, 58, 58),
    # 0 and 2 have sums at 19, 0 has all at 38; 2 has it at 53, 1 at 62, 3 at 68
    _row("tree", 4, 2, 56, 62, 62, 68),
    # the second message waits for the gap, not for its bytes
    ByHand("gap", both, 3, 1, (25, 11, 31), SPACED),
    # 2 a byte on the link: the first is there at 1 + 8 + 5 + 8 + 1, the second 16 later
    ByHand("link", across, 4, 2, (9, 9, 23, 39), links=Links(2, 2)),
)
