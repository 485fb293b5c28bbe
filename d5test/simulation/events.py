"""A discrete-event simulation of any schedule: the generators themselves, message by message.

Requirements: what a communicator demands of a schedule is demanded here. Messages of one tag keep
their order, one that does not fit its room is `WrongSize`, and ranks that wait for ever are
`Stuck`. A send does not wait for its receiver, as LogGP has it. An event is a message that leaves
a port; events are taken in the order of time, so that links that are shared are, too.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from d5test.distributed.communicator import (
    Program,
    Stuck,
    Traffic,
    WrongSize,
    advance,
    in_words,
    volume,
)
from d5test.reference.collectives import ANY, Recv, Schedule, Send, Step
from d5test.simulation.ghost import Ghost, Work
from d5test.simulation.machine import Links, Machine


@dataclass(frozen=True, slots=True)
class Message:
    """`start` is when its first byte leaves the port of rank `source`, `nbytes` its size."""

    source: int
    send: Send
    nbytes: int
    start: float


@dataclass(frozen=True)
class Timeline:
    """When each rank was done, in seconds; what each has sent, and the bytes that each added."""

    finish: Sequence[float]
    traffic: Sequence[Traffic]
    added: Sequence[int]

    @property
    def seconds(self) -> float:
        """Until the last rank was done."""
        return max(self.finish)


@dataclass(slots=True)
class _Rank:
    """Times from which on its core, its port out and its port in are free.

    box  by source and tag: when the first byte of each message is there, and its bytes
    """

    schedule: Schedule
    work: Work
    core: float = 0.0
    out: float = 0.0
    into: float = 0.0
    sent: float = 0.0
    pending: deque[Recv] = field(default_factory=deque)
    box: dict[tuple[int, int], deque[tuple[float, int]]] = field(default_factory=dict)
    heard: int | None = None
    number: int = 0
    done: bool = False
    added: int = 0
    traffic: Traffic = field(default_factory=Traffic)


def simulate(
    program: Program,
    size: int,
    items: int,
    machine: Machine,
    *,
    dtype: str = "float32",
    links: Links | None = None,
) -> Timeline:
    """The schedules of `size` ranks that start together, on arrays of `items` elements."""
    ranks = []
    for rank in range(size):
        work = Work()
        ranks.append(_Rank(program(rank, size, Ghost(items, dtype, work)), work))
    events: list[tuple[float, int, Message]] = []
    uplinks: dict[int, float] = {}
    count = 0

    def go_on(rank: int) -> None:
        """As far as messages that have left take it."""
        nonlocal count
        for message in _leaving(ranks[rank], rank, machine):
            heapq.heappush(events, (message.start, count, message))
            count += 1

    for rank in range(size):
        go_on(rank)
    while events:
        _, _, message = heapq.heappop(events)
        start, send = message.start, message.send
        if links is not None and (node := message.source // links.ranks) != send.to // links.ranks:
            start = max(start, uplinks.get(node, 0.0))
            uplinks[node] = start + message.nbytes * links.per_byte
            start += max(0.0, message.nbytes * links.per_byte - machine.wire(message.nbytes))
        box = ranks[send.to].box.setdefault((message.source, send.tag), deque())
        box.append((start + machine.latency, message.nbytes))
        go_on(send.to)
    if not all(rank.done for rank in ranks):
        raise Stuck([_whereabouts(rank) for rank in ranks])
    return Timeline(
        [rank.core for rank in ranks], [rank.traffic for rank in ranks], [r.added for r in ranks]
    )


def _leaving(rank: _Rank, number: int, machine: Machine) -> list[Message]:
    """What leaves a rank until it waits or is done."""
    leaving: list[Message] = []
    while not rank.done:
        while rank.pending:
            if not _taken(rank, number, machine):
                return leaving
        rank.core = max(rank.core, rank.sent)
        steps = advance(rank.schedule, rank.heard)
        rank.added += (added := rank.work.taken())
        rank.core += machine.added(added)
        rank.done = steps is None
        rank.number += 1
        for step in steps or ():
            if isinstance(step, Send):
                leaving.append(_posted(rank, number, step, machine))
            else:
                rank.pending.append(_receive(step))
    return leaving


def _receive(step: Step) -> Recv:
    if isinstance(step, Recv) and step.source != ANY:
        return step
    raise ValueError(f"the time of a step that waits {in_words(step)} is not modelled")


def _posted(rank: _Rank, number: int, send: Send, machine: Machine) -> Message:
    nbytes = volume(send.data)
    rank.core += machine.overhead
    start = max(rank.core, rank.out)
    rank.out = start + machine.busy(nbytes)
    rank.sent = max(rank.sent, start + machine.wire(nbytes))
    rank.traffic.count(send.data)
    return Message(number, send, nbytes, start)


def _taken(rank: _Rank, number: int, machine: Machine) -> bool:
    """Whether the message that it waits for first has left; then it is received."""
    recv = rank.pending[0]
    box = rank.box.get((recv.source, recv.tag))
    if not box:
        return False
    first_byte, nbytes = box.popleft()
    if nbytes != volume(recv.into):
        raise WrongSize(recv.source, number, nbytes, volume(recv.into), rank.number)
    start = max(first_byte, rank.into)
    rank.into = start + machine.busy(nbytes)
    rank.core = max(rank.core + machine.overhead, start + machine.wire(nbytes))
    rank.heard = recv.source
    rank.pending.popleft()
    return True


def _whereabouts(rank: _Rank) -> str:
    if rank.done:
        return f"done after {rank.number - 1} steps"
    return f"in step {rank.number} waits " + " and ".join(map(in_words, rank.pending))
