"""What a communicator under test owes, and the one that needs no MPI: virtual ranks.

A communicator is asked with the contributions of all ranks and answers with what all ranks have
afterwards. Under mpirun each process picks its own contribution and hears of the others' results.

Virtual ranks are in one process and one thread: a schedule is a generator after all.
Requirements: nothing is buffered, so that a schedule that needs buffers is stuck here as it may be
elsewhere; of the messages that could be delivered next, `choose` takes one, so that every order of
delivery can occur; messages from one rank to another with the same tag keep their order, as MPI
promises. Room that waits for a message is poisoned: who reads it too early, or sends it, shows.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Unsupported
from d5test.case import FLOATS, Operator
from d5test.distributed.judges import Ask, Outcome, Shared, asked, in_turns, outcome
from d5test.distributed.optimizers import DISTRIBUTED, Distributed
from d5test.reference.collectives import (
    ALLREDUCE,
    ANY,
    Accumulate,
    Algorithm,
    Get,
    Recv,
    Schedule,
    Send,
    Step,
)
from d5test.reference.schedules import SCHEDULES, Scheduled

if TYPE_CHECKING:
    from d5test.distributed.collective import Collective, Place

Array = NDArray[Any]
Groups = tuple[tuple[int, ...], ...]
"""Ranks that do something among themselves, in their order."""
Choose = Callable[[int], int]
"""Given a count, an index below it."""
Program = Callable[[int, int, Any], Schedule]
"""The schedule of a rank, by rank, size and the array that it works on."""
DTYPES = (*FLOATS, "int64")
"""In which collectives are judged."""
LIBRARY = "library"
"""The algorithm that a library chooses for itself: the sum may be formed in any order."""

LATE = 0.01
"""Seconds by which one rank enters a library's barrier after the others."""


@dataclass
class Traffic:
    """Messages and bytes that one rank has sent, or moved to and from another rank's array."""

    messages: int = 0
    bytes: int = 0

    def count(self, data: Any) -> None:
        """One more message, or one more access to another rank's array."""
        self.messages += 1
        self.bytes += volume(data)


class Stuck(Exception):
    """No rank can go on. `whereabouts` says of each what it waits for."""

    def __init__(self, whereabouts: list[str]) -> None:
        super().__init__("; ".join(f"rank {r}: {words}" for r, words in enumerate(whereabouts)))
        self.whereabouts = whereabouts


class WrongSize(Exception):
    """A message and the room for it differ in size."""

    def __init__(self, source: int, to: int, sent: int | str, room: int, number: int) -> None:
        super().__init__(
            f"rank {source} sends {sent} bytes, rank {to} has room for {room} in its step {number}"
        )


def volume(data: Any) -> int:
    """Bytes of an array of any kind."""
    return int(data.size) * int(data.dtype.itemsize)


def poison(dtype: Any) -> float:
    """What stands where nothing was written: a number that shows wherever it gets."""
    return float("nan") if dtype.kind not in "iu" else int(np.iinfo(dtype).max)


def advance(schedule: Schedule, heard: int | None) -> tuple[Step, ...] | None:
    """What a schedule waits for next, told which rank it heard of last; None at its end."""
    try:
        # the first time, a generator takes nothing but None
        steps = schedule.send(heard)  # type: ignore[arg-type]
    except StopIteration:
        return None
    return steps if isinstance(steps, tuple) else (steps,)


def in_words(step: Step) -> str:
    """What a rank waits for in this step."""
    if isinstance(step, Get | Accumulate):
        return f"to access the array of rank {step.target}"
    if isinstance(step, Recv):
        source = "any rank" if step.source == ANY else f"rank {step.source}"
        return f"to receive {volume(step.into)} bytes from {source}"
    return f"to send {volume(step.data)} bytes to rank {step.to}"


def shuffled(order: int) -> Choose:
    """Any index, as a seed has it."""
    return random.Random(order).randrange


def run(
    schedules: Sequence[Schedule], choose: Choose, exposed: Sequence[Any] = ()
) -> list[Traffic]:
    """Run one schedule a rank to the end; what each rank has sent.

    `exposed` are the ranks' arrays for `Get` and `Accumulate`. Raises `Stuck` if no message can be
    delivered any more, `WrongSize` if one does not fit.
    """
    ranks = [_Rank(schedule) for schedule in schedules]
    for rank in ranks:
        rank.go_on()
    while events := [*_deliverable(ranks), *_accesses(ranks, exposed)]:
        events[choose(len(events))]()
    if any(rank.waiting for rank in ranks):
        raise Stuck([rank.whereabouts for rank in ranks])
    return [rank.traffic for rank in ranks]


def run_copies(
    program: Program, arrays: Sequence[Any], order: int, *, exposed: bool = False
) -> tuple[tuple[Any, ...], tuple[Traffic, ...]]:
    """Run each rank's schedule on a copy of its array, in an order of delivery.

    The copies, and what each rank has sent. Where they are `exposed`, ranks reach into them.
    """
    copies = tuple(np.empty_like(x) for x in arrays)
    for copy, x in zip(copies, arrays, strict=True):
        copy[...] = x
    schedules = [program(rank, len(copies), x) for rank, x in enumerate(copies)]
    return copies, tuple(run(schedules, shuffled(order), copies if exposed else ()))


@dataclass
class _Rank:
    """Where a rank is: in step `number` of its schedule, waiting for these."""

    schedule: Schedule
    waiting: list[Step] = field(default_factory=list)
    number: int = 0
    heard: int | None = None
    traffic: Traffic = field(default_factory=Traffic)

    def go_on(self) -> None:
        """To the next steps that wait for something, if there are any."""
        while not self.waiting and (steps := advance(self.schedule, self.heard)) is not None:
            self.number += 1
            self.waiting = list(steps)
            for room in (step.into for step in steps if isinstance(step, Recv)):
                room[...] = poison(room.dtype)

    @property
    def whereabouts(self) -> str:
        """In words."""
        if not self.waiting:
            return f"done after {self.number} steps"
        return f"in step {self.number} waits " + " and ".join(map(in_words, self.waiting))


def _deliverable(ranks: Sequence[_Rank]) -> Iterator[Callable[[], None]]:
    """The sends for which somebody waits: of each pair of ranks and tag the first one."""
    for source, sender in enumerate(ranks):
        met = set()
        for send in sender.waiting:
            if not isinstance(send, Send) or (send.to, send.tag) in met:
                continue
            met.add((send.to, send.tag))
            for recv in ranks[send.to].waiting:
                if not isinstance(recv, Recv) or recv.tag != send.tag:
                    continue
                if recv.source in (source, ANY):
                    yield partial(_deliver, ranks, source, send, recv)
                    break


def _deliver(ranks: Sequence[_Rank], source: int, send: Send, recv: Recv) -> None:
    sender, receiver = ranks[source], ranks[send.to]
    sent, room = volume(send.data), volume(recv.into)
    if sent != room:
        raise WrongSize(source, send.to, sent, room, receiver.number)
    recv.into[...] = send.data
    sender.traffic.count(send.data)
    sender.waiting.remove(send)
    receiver.waiting.remove(recv)
    receiver.heard = source
    sender.go_on()
    receiver.go_on()


def _accesses(ranks: Sequence[_Rank], exposed: Sequence[Any]) -> Iterator[Callable[[], None]]:
    """The one-sided steps, for which nobody has to wait."""
    for rank in ranks:
        for step in rank.waiting:
            if isinstance(step, Get | Accumulate):
                yield partial(_access, rank, step, exposed[step.target])


def _access(rank: _Rank, step: Get | Accumulate, array: Any) -> None:
    data = step.into if isinstance(step, Get) else step.data
    there = array[step.start : step.start + len(data)]
    if isinstance(step, Get):
        data[...] = there
    else:
        there += data
    rank.traffic.count(data)
    rank.waiting.remove(step)
    rank.go_on()


@dataclass(frozen=True, kw_only=True, repr=False)
class Allreduce(Operator):
    """The sum of n contributions, at every rank. Each is flat, and they are alike.

    Input and output `k` are rank `k`'s: so a case of it is a `Case` like any other, and a bar that
    runs through the schedule knows the order of its summation.

    algorithm  a name in `ALLREDUCE`, or `LIBRARY`
    order      which order of delivery virtual ranks have; other communicators have their own
    """

    domain = "d5test"
    algorithm: str
    order: int = 0

    def forward(self, *contributions: Any) -> Any:
        """One output a rank. Works on copies."""
        if self.algorithm == LIBRARY:
            return (np.stack(contributions).sum(axis=0),) * len(contributions)
        return run_copies(ALLREDUCE[self.algorithm].schedule, contributions, self.order)[0]


def subjects(schedules: Mapping[str, Mapping[str, Scheduled]]) -> Iterator[str]:
    """Collectives by our algorithms, as they stand in ids: `broadcast-binomial`."""
    yield from (f"{name}-{algorithm}" for name, row in schedules.items() for algorithm in row)


@dataclass(frozen=True)
class Reduced:
    """What each rank has afterwards, and what it has sent if the communicator counts that."""

    results: Sequence[Array]
    traffic: Sequence[Traffic] | None = None


class ByRank(Sequence[Array]):
    """An array of each rank, made when it is asked for: a process needs its own, a judge all."""

    def __init__(self, size: int, make: Callable[[int], Array]) -> None:
        self._ranks, self._make = range(size), cache(make)

    def __len__(self) -> int:
        return len(self._ranks)

    def __getitem__(self, at: Any) -> Any:
        chosen = self._ranks[at]
        return [*map(self._make, chosen)] if isinstance(at, slice) else self._make(chosen)


@dataclass(frozen=True)
class Facts:
    """How a communicator stands in a message."""

    name: str
    version: str
    device: str
    mode: str


class Communicator(Protocol):
    """Ranks that have collectives: their own, or schedules.

    sizes  the numbers of ranks that can be asked for
    drawn  whether cases are drawn by Hypothesis; else they come from a seeded table, since all
           processes have to agree on them
    """

    sizes: Sequence[int]
    drawn: bool

    def about(self, size: int) -> Facts:
        """What it is, with so many ranks."""

    def dtypes(self, subject: str) -> tuple[str, ...]:
        """Those in which it does this algorithm or optimizer; none if it does not."""

    def allreduce(self, op: Allreduce, contributions: Sequence[Array]) -> Reduced:
        """Have the ranks do it. The contributions, one a rank, are left as they are."""

    def outcomes(self, asks: Sequence[Ask]) -> list[Outcome]:
        """What comes of each, at all ranks. A fault that an `Ask` raises itself is raised."""


class Library(Communicator, Protocol):
    """A communicator with collectives of its own besides an allreduce."""

    def collective(
        self, op: Collective, places: Mapping[int, Place], buffers: Sequence[Array]
    ) -> Reduced:
        """Have the ranks do it on copies of their buffers, which are the results."""


class Runner(Communicator, Protocol):
    """A communicator that runs any schedule, not only collectives of its own."""

    optimizers: Mapping[str, Distributed]
    schedules: Mapping[str, Mapping[str, Scheduled]]

    def run(
        self, program: Program, arrays: Sequence[Array], order: int, *, exposed: bool = False
    ) -> Reduced:
        """Have each rank run a schedule on a copy of its array, `exposed` to the others or not."""

    def everywhere(self, values: Mapping[int, Any]) -> list[Any]:
        """What the ranks in this process have found, and the others: rank by rank."""


@dataclass(frozen=True)
class Virtual:
    """Any number of ranks in this process, running these algorithms."""

    algorithms: Mapping[str, Algorithm] = field(default_factory=lambda: ALLREDUCE)
    optimizers: Mapping[str, Distributed] = field(default_factory=lambda: DISTRIBUTED)
    schedules: Mapping[str, Mapping[str, Scheduled]] = field(default_factory=lambda: SCHEDULES)
    sizes: Sequence[int] = range(1, 10)
    drawn: bool = True

    def about(self, size: int) -> Facts:
        """NumPy does the sums."""
        return Facts("virtual ranks", f"numpy {np.__version__}", f"{size} ranks", "unbuffered")

    def dtypes(self, subject: str) -> tuple[str, ...]:
        """All of them, of every schedule."""
        known = (*self.algorithms, *self.optimizers, *subjects(self.schedules))
        return DTYPES if subject in known else ()

    def allreduce(self, op: Allreduce, contributions: Sequence[Array]) -> Reduced:
        """In the order of delivery that `op` asks for."""
        return self.run(self.algorithms[op.algorithm].schedule, contributions, op.order)

    def run(
        self, program: Program, arrays: Sequence[Array], order: int, *, exposed: bool = False
    ) -> Reduced:
        """In the order of delivery that is asked for."""
        return Reduced(*run_copies(program, arrays, order, exposed=exposed))

    def everywhere(self, values: Mapping[int, Any]) -> list[Any]:
        """All ranks are here."""
        return [values[rank] for rank in sorted(values)]

    def outcomes(self, asks: Sequence[Ask]) -> list[Outcome]:
        """There is one process only."""
        return [outcome(asked(ask)) for ask in asks]


@dataclass(frozen=True)
class Processes(ABC):
    """Ranks that are processes under mpirun, those of the MPI communicator `comm`."""

    comm: Any
    drawn: bool = field(default=False, kw_only=True)
    _shared: list[list[Shared]] = field(default_factory=list, init=False, repr=False)
    """Of each case that is asked; empty outside of `outcomes`."""

    @abstractmethod
    def group(self, groups: Groups) -> AbstractContextManager[Any]:
        """What this rank's group is to the library, in the order of its ranks; None: in none."""

    def lacks(self, op: Collective) -> str:
        """Why the library has no such collective, the same at all ranks; empty if it has."""
        return ""

    @abstractmethod
    def own(self, op: Collective, place: Place, group: Any, x: Array, y: Array) -> None:
        """The library's own collective. `x` is what this rank has, `y` is filled."""

    def collective(
        self, op: Collective, places: Mapping[int, Place], buffers: Sequence[Array]
    ) -> Reduced:
        """The library's own, on copies of the ranks' buffers: what is in them afterwards."""
        if reason := self.lacks(op):
            raise Unsupported(reason)
        mine, place = buffers[self.comm.rank].copy(), places.get(self.comm.rank)
        with self.group(op.groups) as group:
            if place is not None:
                self.own(op, place, group, mine[place.x], mine[place.y])
        return Reduced(self.shared(mine))

    @property
    def sizes(self) -> Sequence[int]:
        """As many as mpirun started."""
        return (self.comm.size,)

    @property
    def pending(self) -> int:
        """How much was shared since the last exchange: a rank may be so far ahead of another."""
        return sum(map(len, self._shared))

    def shared(self, mine: Any) -> list[Any]:
        """What each rank has: `mine` at this one. Within `outcomes` it is filled for its judge."""
        if not self._shared:
            return list(self.comm.allgather(mine))
        room: list[Any] = []
        self._shared[-1].append((mine, room))
        return room

    def outcomes(self, asks: Sequence[Ask]) -> list[Outcome]:
        """All are asked before the ranks exchange what they have, and judge it in turns."""
        judges = []
        try:
            for ask in asks:
                self._shared.append([])
                judges.append(asked(ask))
            shared = [*self._shared]
        finally:
            self._shared.clear()
        return in_turns(self.comm, judges, shared)
