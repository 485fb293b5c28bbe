"""A step of a distributed optimizer on the first few ranks under mpirun, to be timed.

Requirements: nothing between the ranks and MPI; the other ranks do nothing. What was timed is
checked afterwards: replicas have the same bits, and have moved; what was sent is what the
formula says.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from d5test.distributed.learning import Task
from d5test.distributed.mpi import run
from d5test.distributed.replica import Replica
from d5test.distributed.scaling import minibatch
from d5test.distributed.traffic import Traffic
from d5test.networks.executor import Executor


class Measured(NamedTuple):
    """What a rank measured of itself: seconds a step in its own gradient, messages and bytes."""

    compute: float
    messages: int
    bytes: int
    replica: str
    moved: bool


class TimedStep:
    """Call it: it takes one step on the first `task.size` ranks of `comm`, an `Mpi`.

    Each call begins with fresh slots of the base optimizer, where the last one has led to.
    """

    def __init__(self, comm: Any, client: Any, task: Task, name: str, mode: str) -> None:
        self.comm, self.part, self.size = comm, comm.part(task.size), task.size
        self.optimizer = task.optimizer(comm, name)
        self.replica = Replica(Executor(client, task.recipe.network(task.seed)), "loss")
        self.start = self.replica.parameters()
        self._w, self._traffic = self.start.copy(), Traffic()
        if self.part is not None:
            train = task.dataset.train
            batch = train.batch(minibatch(mode, self.part.rank, task.size, len(train)))
            self._gradient = self.replica.gradient(lambda step: batch)

    def __call__(self) -> None:
        """On this rank, if it takes part."""
        if self.part is not None:
            schedule = self.optimizer.train(self.part.rank, self.size, self._w, self._gradient, 1)
            self._traffic = run(schedule, self.part)

    def begin(self) -> None:
        """Forget the steps so far: they made the framework ready."""
        self.replica.begin()

    def measured(self) -> list[Measured]:
        """Of the ranks that took part, told to all."""
        replica, traffic = self.replica, self._traffic
        own = Measured(
            replica.seconds / max(len(replica.losses), 1),
            traffic.messages,
            traffic.bytes,
            hashlib.sha256(self._w.tobytes()).hexdigest(),
            not np.array_equal(self._w, self.start) and bool(np.isfinite(self._w).all()),
        )
        every: list[Measured] = self.comm.everywhere({self.comm.comm.rank: own})
        return every[: self.size]

    def wrong(self, measured: list[Measured]) -> str:
        """Why the time of these steps means nothing; empty if they were right."""
        items = self.optimizer.items(self.size, self.start.size, steps=1)
        want, sent = items * self.start.itemsize, sum(own.bytes for own in measured)
        if not all(own.moved for own in measured):
            return "the parameters have not moved, or not to numbers"
        if len({own.replica for own in measured}) > 1:
            return "the replicas differ after the timed steps"
        return "" if sent == want else f"{sent} bytes were sent in a step, not {want}"

    def close(self) -> None:
        """Give back what it has taken."""
        self.replica.executor.unload()
        if self.part is not None:
            self.part.Free()
