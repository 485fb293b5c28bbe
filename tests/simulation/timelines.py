"""Timelines by hand: schedules on 2 to 4 ranks, and when each rank is done."""

from dataclasses import dataclass
from typing import Any

from d5test.reference.collectives import ALLREDUCE, Recv, Schedule, Send
from d5test.simulation.machine import Bend, Links, Machine

LOGGP = Machine(latency=5, per_byte=1, addition=0.5, overhead=1)
"""A message of k bytes at an idle port: 1 + 5 + k; a sum of k bytes: k / 2."""
SPACED = Machine(latency=5, per_byte=1, addition=0.5, overhead=1, gap=20)
BUSY = Machine(latency=1, per_byte=1, addition=0.5, overhead=10)
"""The overhead of a receive lasts longer than a message is on its way."""
BENT = Machine(latency=5, per_byte=1, addition=0.5, overhead=1, bends=(Bend(4, 2, 3),))
"""From the fifth byte on, one takes 2 on its way, and 3 to be added."""


def one(rank: int, size: int, x: Any) -> Schedule:
    yield Send(1, x) if rank == 0 else Recv(0, x)


def both(rank: int, size: int, x: Any) -> Schedule:
    """Rank 0 sends to 1 and to 2 at once."""
    yield (Send(1, x), Send(2, x)) if rank == 0 else Recv(0, x)


def exchange(rank: int, size: int, x: Any) -> Schedule:
    yield Send(1 - rank, x), Recv(1 - rank, x)


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


def _row(name: str, size: int, items: int, *finish: float, machine: Machine = LOGGP) -> ByHand:
    return ByHand(name, ALLREDUCE[name].schedule, size, items, finish, machine)


TIMELINES = (
    # sent: 1 + 8; come: 1 + 5 + 8
    ByHand("one message", one, 2, 2, (9, 14)),
    # the receiver has its overhead behind it, at 10, when the message comes, at 10 + 1 + 4
    ByHand("one message", one, 2, 1, (14, 15), BUSY),
    # it comes at 15 here, too, and the overhead of the receive follows that of the send
    ByHand("exchange", exchange, 2, 1, (20, 20), BUSY),
    ByHand("exchange", exchange, 2, 2, (14, 14)),
    # both leave at 1, are at the port at 6, in it until 14 and 22; sums: 14 to 18, 22 to 26;
    # sent from 27 to 35 and, the port being busy, to 43
    _row("star", 3, 2, 43, 40, 48),
    # come at 15 and 19; sums: 15 to 17 and, after an overhead, 27 to 29; sent at 39 and 49
    _row("star", 3, 1, 53, 44, 54, machine=BUSY),
    # chunks of 4 bytes: 1 + 5 + 4 and 2 for the sum, then 10 more
    _row("ring", 2, 2, 22, 22),
    # one item, and an empty chunk, which costs 6: rank 1 has the sum at 12, sends it until 17
    _row("ring", 2, 1, 22, 17),
    # each step is 20; rank 1 alone has a sum of 2
    _row("ring", 2, 1, 40, 42, machine=BUSY),
    # sent: 1 + 4 + 4 2; the sum: 4 / 2 + 4 3
    ByHand("one message that bends", one, 2, 2, (13, 18), BENT),
    _row("recursive_doubling", 2, 2, 32, 32, machine=BENT),
    # 16 on the link, of which the message takes 12 by itself
    ByHand("link that bends", across, 4, 2, (13, 13, 22, 38), BENT, Links(2, 2)),
    # twice 14 and 4
    _row("recursive_doubling", 4, 2, 36, 36, 36, 36),
    # 8 bytes: 14 + 4, 4 bytes: 10 + 2; back 10, 14
    _row("halving_doubling", 4, 4, 54, 54, 54, 54),
    # 0 and 2 have sums at 18, 0 has all at 36; 2 has it at 50, 1 at 59, 3 at 64
    _row("tree", 4, 2, 54, 59, 59, 64),
    # the second message waits for the gap, not for its bytes
    ByHand("gap", both, 3, 1, (25, 10, 30), SPACED),
    # 2 a byte on the link: the first is there at 1 + 8 + 5 + 8, the second 16 later
    ByHand("link", across, 4, 2, (9, 9, 22, 38), links=Links(2, 2)),
)
