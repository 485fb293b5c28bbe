"""mpi4py's calls for any Python object, by a communicator that has its buffer calls.

Requirements: the same arguments and results as mpi4py's, in the order of ranks; slower, since each
object goes to every rank.
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np
from mpi4py import MPI

Operation = Callable[[Any, Any], Any]


class Pickled:
    """The calls in lower case. `Allgather`, `Allgatherv`, `mprobe` ... are the communicator's."""

    rank: int
    size: int
    Allgather: Callable[..., None]
    Allgatherv: Callable[..., None]
    Barrier: Callable[[], None]
    mprobe: Callable[..., Any]
    isend: Callable[..., Any]
    issend: Callable[..., Any]

    def barrier(self) -> None:
        """Wait for all."""
        self.Barrier()

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object to a rank."""
        self.isend(obj, dest, tag).wait()

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object, and wait until it is received."""
        self.issend(obj, dest, tag).wait()

    def recv(
        self,
        buf: Any = None,
        source: int = MPI.ANY_SOURCE,
        tag: int = MPI.ANY_TAG,
        status: Any = None,
    ) -> Any:
        """Receive an object."""
        return self.mprobe(source, tag, status=status).recv()

    def allgather(self, sendobj: Any) -> list[Any]:
        """The objects of all ranks, at every rank."""
        mine = np.frombuffer(pickle.dumps(sendobj), np.uint8)
        counts = np.empty(self.size, np.int64)
        self.Allgather(np.array([mine.size]), counts)
        every = np.empty(counts.sum(), np.uint8)
        self.Allgatherv(mine, [every, counts])
        ends = np.cumsum(counts)
        return [pickle.loads(part.tobytes()) for part in np.split(every, ends[:-1])]

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """The root's object."""
        return self.allgather(obj if self.rank == root else None)[root]

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """The objects of all ranks, at the root."""
        every = self.allgather(sendobj)
        return every if self.rank == root else None

    def scatter(self, sendobj: Sequence[Any] | None, root: int = 0) -> Any:
        """One of the root's objects."""
        return self.allgather(sendobj if self.rank == root else None)[root][self.rank]

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """The object that each rank has for this one."""
        return [objects[self.rank] for objects in self.allgather(sendobj)]

    def allreduce(self, sendobj: Any, op: Operation = operator.add) -> Any:
        """The objects of all ranks, reduced from left to right."""
        return reduce(op, self.allgather(sendobj))

    def reduce(self, sendobj: Any, op: Operation = operator.add, root: int = 0) -> Any:
        """The same, at the root."""
        every = self.allreduce(sendobj, op)
        return every if self.rank == root else None

    def scan(self, sendobj: Any, op: Operation = operator.add) -> Any:
        """The objects of the ranks up to this one, reduced."""
        return list(accumulate(self.allgather(sendobj), op))[self.rank]

    def exscan(self, sendobj: Any, op: Operation = operator.add) -> Any:
        """The objects of the ranks before this one, reduced; `None` at the first."""
        before = list(accumulate(self.allgather(sendobj), op))
        return before[self.rank - 1] if self.rank else None
