"""What distributed optimizers must compute: one process that has all ranks' minibatches.

A rule takes the optimizer's numbers, the parameters at the start and a gradient function a rank,
and returns the parameters of each rank after so many steps. Where the order in which a server
takes messages matters, it is told: `events` are those of rank 0, one after the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from d5test.distributed.graphs import GRAPHS, mixing
from d5test.distributed.optimizer import Gradient, Local
from d5test.distributed.optimizers import (
    AVERAGING,
    AWARE,
    CONSISTENT,
    ELASTIC,
    FEDERATED,
    GROWING,
    SERVERS,
)
from d5test.reference.collectives import ANY, Recv, Schedule, Send, Step

Event = tuple[str, int]
"""("read", k): rank k was sent what rank 0 has. ("sent", k): what rank k sent was taken."""
Rule = Callable[[Any, Any, Sequence[Gradient], int, Sequence[Event]], list[Any]]
"""(optimizer, w, gradients, steps, events) -> w of each rank."""


def together(
    optimizer: Any, w: Any, gradients: Sequence[Gradient], steps: int, events: Sequence[Event]
) -> list[Any]:
    """The base optimizer with the mean gradient."""
    w, local = w.copy(), Local(optimizer.base)
    for step in range(steps):
        g = [gradient(step, w) for gradient in gradients]
        local.step(w, sum(g[1:], g[0]) / len(g))
    return [w] * len(gradients)


def growing(
    optimizer: Any, w: Any, gradients: Sequence[Gradient], steps: int, events: Sequence[Event]
) -> list[Any]:
    """The base optimizer with the mean over all ranks and so many minibatches in a row."""
    w, local, step, made = w.copy(), Local(optimizer.base), 0, 0
    while step < steps:
        many = min(optimizer.factor ** (made // optimizer.after), optimizer.most, steps - step)
        g = [gradient(step + i, w) for i in range(many) for gradient in gradients]
        local.step(w, sum(g[1:], g[0]) / len(g))
        step, made = step + many, made + 1
    return [w] * len(gradients)


def mixed(
    optimizer: Any, w: Any, gradients: Sequence[Gradient], steps: int, events: Sequence[Event]
) -> list[Any]:
    """w_i = sum of W_ij w_j, then a step with the gradient at the old w_i."""
    size = len(gradients)
    matrix, ranks = mixing(GRAPHS[optimizer.graph], size), range(size)
    replicas, locals_ = [w.copy() for _ in ranks], [Local(optimizer.base) for _ in ranks]
    for step in range(steps):
        before = [replica.copy() for replica in replicas]
        for i in ranks:
            mean = sum(matrix[i, j] * before[j] for j in ranks)
            locals_[i].step(replicas[i], gradients[i](step, before[i]), at=mean)
    return replicas


def alone(
    optimizer: Any, w: Any, gradients: Sequence[Gradient], steps: int, events: Sequence[Event]
) -> list[Any]:
    """Steps on one's own; after some of them all have the mean."""
    replicas = [w.copy() for _ in gradients]
    locals_ = [Local(optimizer.base) for _ in gradients]
    for t in range(1, steps + 1):
        for replica, local, gradient in zip(replicas, locals_, gradients, strict=True):
            local.step(replica, gradient(t - 1, replica))
        if t <= optimizer.together or t % optimizer.every == 0:
            replicas = [np.mean(replicas, axis=0) for _ in gradients]
    return replicas


def federated(
    optimizer: Any, w: Any, gradients: Sequence[Gradient], steps: int, events: Sequence[Event]
) -> list[Any]:
    """w_0 = sum of n_k w_k over sum of n_k, for the ranks k that took part in the round."""
    replicas = [w.copy() for _ in gradients]
    for first in range(0, steps, optimizer.every):
        clients = optimizer.clients(len(gradients), first // optimizer.every)
        start = replicas[0].copy()
        for k in clients:
            replicas[k], local = start.copy(), Local(optimizer.base)
            for step in range(first, min(first + optimizer.every, steps)):
                local.step(replicas[k], gradients[k](step, replicas[k]))
        samples = [optimizer.samples[k % len(optimizer.samples)] for k in clients]
        weighted = [n * replicas[k] for n, k in zip(samples, clients, strict=True)]
        replicas[0] = sum(weighted[1:], weighted[0]) / sum(samples)
    return replicas


def served(
    optimizer: Any, w: Any, gradients: Sequence[Gradient], steps: int, events: Sequence[Event]
) -> list[Any]:
    """The server steps with each gradient, which was taken where its worker had read."""
    replicas, server = [w.copy() for _ in gradients], Local(optimizer.base)
    for worker, clock, _ in taken(events, replicas):
        server.step(replicas[0], gradients[worker](clock, replicas[worker]))
    return replicas


def aware(
    optimizer: Any, w: Any, gradients: Sequence[Gradient], steps: int, events: Sequence[Event]
) -> list[Any]:
    """As `served`, by lr over the gradients applied since the read, if there were any."""
    base = optimizer.base
    replicas, server = [w.copy() for _ in gradients], Local(base)
    for worker, clock, missed in taken(events, replicas):
        server.base = base.with_(lr=base.lr / missed) if missed else base
        server.step(replicas[0], gradients[worker](clock, replicas[worker]))
    return replicas


def elastic(
    optimizer: Any, w: Any, gradients: Sequence[Gradient], steps: int, events: Sequence[Event]
) -> list[Any]:
    """d = alpha (w_i - c) as worker i read c; w_i loses d, c gains it when it is taken."""
    size, every = len(gradients), optimizer.every
    replicas, locals_ = [w.copy() for _ in gradients], [Local(optimizer.base) for _ in gradients]
    centres = [w.copy() for _ in gradients]
    for worker, clock, _ in taken(events, centres):
        own = replicas[worker]
        force = (own - centres[worker]) * optimizer.moving_rate / (size - 1)
        for step in range(clock * every, min((clock + 1) * every, steps)):
            pulled = own - force if step == clock * every else own
            locals_[worker].step(own, gradients[worker](step, own), at=pulled)
        centres[0] += force
    return [centres[0], *replicas[1:]]


def taken(events: Sequence[Event], seen: list[Any]) -> Iterator[tuple[int, int, int]]:
    """What rank 0 takes: (worker, clock, updates since the worker's read), one after the other.

    `seen[0]` is what rank 0 has, `seen[k]` becomes what worker k has read.
    """
    clocks, read_at, applied = [0] * len(seen), [0] * len(seen), 0
    for what, worker in events:
        if what == "read":
            seen[worker], read_at[worker] = seen[0].copy(), applied
        else:
            yield worker, clocks[worker], applied - read_at[worker]
            clocks[worker] += 1
            applied += 1


def oddity(events: Sequence[Event], size: int, rounds: int) -> str:
    """What is odd about events, in words: each worker reads, sends, reads, ... `rounds` times."""
    want = ["read", "sent"] * rounds
    for worker in range(size):
        got = [what for what, who in events if who == worker]
        if got != (want if worker > 0 else []):
            times = f"reads {got.count('read')} times and sends {got.count('sent')} times"
            return f"rank {worker} {times} in {rounds} rounds"
    return ""


def furthest(events: Sequence[Event], size: int) -> int:
    """The largest lead of a worker that reads over the slowest worker, in rounds."""
    clocks, lead = [0] * size, 0
    for what, worker in events:
        if what == "read":
            lead = max(lead, clocks[worker] - min(clocks[1:]))
        else:
            clocks[worker] += 1
    return lead


def noted(schedule: Schedule, events: list[Event]) -> Schedule:
    """The schedule of rank 0; its events are appended as they end."""
    heard: int | None = None
    while True:
        try:
            # the first time, a generator takes nothing but None
            steps = schedule.send(heard)  # type: ignore[arg-type]
        except StopIteration:
            return
        heard = yield steps
        each = steps if isinstance(steps, tuple) else (steps,)
        events += [event for step in each for event in _event(step, heard)]


def _event(step: Step, heard: int) -> list[Event]:
    if isinstance(step, Send):
        return [("read", step.to)]
    if isinstance(step, Recv):
        return [("sent", heard if step.source == ANY else step.source)]
    return []


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(CONSISTENT, together),
    **dict.fromkeys(GROWING, growing),
    **{name: mixed if name.startswith("neighbour") else alone for name in AVERAGING},
    **dict.fromkeys(FEDERATED, federated),
    **dict.fromkeys(SERVERS, served),
    **dict.fromkeys(AWARE, aware),
    **dict.fromkeys(ELASTIC, elastic),
}
"""By the optimizer's name."""
