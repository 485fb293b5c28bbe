"""All ranks of a communicator in one process, one thread: a schedule is a generator after all.

Requirements: nothing is buffered, so that a schedule that needs buffers is stuck here as it may be
elsewhere; of the messages that could be delivered next, `choose` takes one, so that every order of
delivery can occur; messages from one rank to another with the same tag keep their order, as MPI
promises. Room that waits for a message is poisoned: who reads it too early, or sends it, shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from d5test.distributed.traffic import Stuck, Traffic, WrongSize, in_words, together, volume
from d5test.reference.collectives import ANY, Accumulate, Get, Recv, Schedule, Send, Step

Choose = Callable[[int], int]
"""Given a count, an index below it."""


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
        while not self.waiting:
            try:
                # the first time, a generator takes nothing but None
                steps = self.schedule.send(self.heard)  # type: ignore[arg-type]
            except StopIteration:
                return
            self.number += 1
            self.waiting = list(together(steps))
            for step in self.waiting:
                if isinstance(step, Recv):
                    _poison(step.into)

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


def _poison(room: Any) -> None:
    room[...] = np.iinfo(room.dtype).max if room.dtype.kind in "iu" else np.nan
