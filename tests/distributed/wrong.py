"""Allreduces that are wrong on purpose, each in one way in which real ones were."""

from dataclasses import replace
from typing import Any

import numpy as np

from d5test.reference.collectives import ALLREDUCE, Algorithm, Recv, Schedule, Send


def last_step_skipped(rank: int, size: int, x: Any) -> Schedule:
    """A ring that hands its chunks out one step too few."""
    steps = ALLREDUCE["ring"].schedule(rank, size, x)
    for number, step in enumerate(steps):
        if number < 2 * (size - 1) - 1:
            yield step


def chunks_swapped(rank: int, size: int, x: Any) -> Schedule:
    """A ring after which the chunks of two ranks stand in each other's place."""
    yield from ALLREDUCE["ring"].schedule(rank, size, x)
    chunks = np.array_split(x, size)
    if size > 1 and len(chunks[0]) == len(chunks[1]):
        chunks[0][...], chunks[1][...] = chunks[1].copy(), chunks[0].copy()


def one_left_out(rank: int, size: int, x: Any) -> Schedule:
    """A star whose rank 0 forgets to add what the last rank sent."""
    if rank > 0:
        yield Send(0, x)
        yield Recv(0, x)
        return
    part = np.empty_like(x)
    for other in range(1, size):
        yield Recv(other, part)
        if other < size - 1:
            x += part
    yield tuple(Send(other, x) for other in range(1, size))


def too_short(rank: int, size: int, x: Any) -> Schedule:
    """A tree that sends all but the last element up."""
    for step in ALLREDUCE["tree"].schedule(rank, size, x):
        steps = Send(step.to, step.data[:-1]) if isinstance(step, Send) else step
        yield steps


def send_first(rank: int, size: int, x: Any) -> Schedule:
    """A ring whose ranks all send before they receive: it needs a buffer that may not be there."""
    for steps in ALLREDUCE["ring"].schedule(rank, size, x):
        assert isinstance(steps, tuple)
        yield from steps


def in_place(rank: int, size: int, x: Any) -> Schedule:
    """A recursive doubling that receives where it still sends from."""
    for steps in ALLREDUCE["recursive_doubling"].schedule(rank, size, x):
        if isinstance(steps, tuple):
            send, recv = steps
            yield Send(send.to, recv.into), recv
        else:
            yield steps


def own_order(rank: int, size: int, x: Any) -> Schedule:
    """Everybody hears everybody, and adds in an order of its own."""
    parts = [x.copy() if other == rank else np.empty_like(x) for other in range(size)]
    others = [other for other in range(size) if other != rank]
    yield *(Send(o, parts[rank]) for o in others), *(Recv(o, parts[o]) for o in others)
    x[...] = 0
    for other in range(size):
        x += parts[(rank + other) % size]


def everything_sent(rank: int, size: int, x: Any) -> Schedule:
    """Right, but hands out more than it has to: rank 0 sends the sum twice."""
    yield from ALLREDUCE["star"].schedule(rank, size, x)
    if rank == 0:
        yield tuple(Send(other, x) for other in range(1, size))
    else:
        yield Recv(0, x)


def coarse(rank: int, size: int, x: Any) -> Schedule:
    """A star whose sum has half the bits of its dtype."""
    yield from ALLREDUCE["star"].schedule(rank, size, x)
    if size > 1:
        x[...] = x.astype(np.float32 if x.dtype == np.float64 else np.float16)


def planted(name: str, schedule: Any) -> dict[str, Algorithm]:
    """All algorithms, `name` with another schedule."""
    return {**ALLREDUCE, name: replace(ALLREDUCE[name], schedule=schedule)}
