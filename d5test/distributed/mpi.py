"""Ranks that are processes under mpirun: schedules by nonblocking messages, and MPI's allreduce.

Anything with mpi4py's `Isend`, `Irecv`, `Allreduce`, `allgather`, `rank` and `size` can carry it.
Messages travel as bytes, so that every dtype does; what a library has no datatype for (bfloat16)
only the schedules can sum.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from mpi4py import MPI

from d5test.distributed.collective import Collective, Place
from d5test.distributed.communicator import (
    DTYPES,
    LATE,
    LIBRARY,
    Allreduce,
    Array,
    Facts,
    Groups,
    Processes,
    Program,
    Reduced,
    Traffic,
    WrongSize,
    advance,
    volume,
)
from d5test.distributed.mpi_calls import OWN, Call
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
)
from d5test.reference.schedules import SCHEDULES, Scheduled
from d5test.reference.semantics import COLLECTIVES

SERIES = 64
"""Kinds of messages: ranks are less than so many schedules apart. Tags may go up to 511 with
any MPI, which has to have those up to 32767."""


def run(schedule: Schedule, comm: Any, window: Any = None, series: int = 0) -> Traffic:
    """Run this rank's schedule to the end; what it has sent. Raises `WrongSize`.

    `window` has the ranks' arrays, for `Get` and `Accumulate`; all are locked, by all. A message
    of another `series`, of `SERIES`, is none of this schedule, whoever sends it.
    """
    traffic, status, heard, number = Traffic(), MPI.Status(), None, 0
    while (steps := advance(schedule, heard)) is not None:
        number += 1
        # receivers first: a message that finds its room need not be put aside
        rooms = [step for step in steps if isinstance(step, Recv)]
        sends = [step for step in steps if isinstance(step, Send)]
        waiting = [
            comm.Irecv(
                _bytes(r.into), MPI.ANY_SOURCE if r.source == ANY else r.source,
                r.tag * SERIES + series,
            )
            for r in rooms
        ]  # fmt: skip
        leaving = [comm.Isend(_bytes(s.data), s.to, s.tag * SERIES + series) for s in sends]
        for recv, request in zip(rooms, waiting, strict=True):
            _wait(request, status, recv, comm.rank, number)
            heard = status.Get_source()
        for send, request in zip(sends, leaving, strict=True):
            request.Wait()
            traffic.count(send.data)
        for step in steps:
            if isinstance(step, Get | Accumulate):
                traffic.count(_access(step, window))
    return traffic


def _access(step: Get | Accumulate, window: Any) -> Array:
    """A one-sided step, until it is done at the other end too; the data that it moved."""
    data: Array = step.into if isinstance(step, Get) else step.data
    start = (step.start, data.size)
    if isinstance(step, Get):
        window.Get(data, step.target, start)
    else:
        window.Accumulate(data, step.target, start, MPI.SUM)
    window.Flush(step.target)
    return data


@contextmanager
def _window(array: Array, comm: Any) -> Iterator[Any]:
    """The ranks' arrays, whose locks are taken once: none of them excludes another.

    Where ranks lock for each access, MPICH waits until the target is in MPI (Open MPI does not).
    """
    window = MPI.Win.Create(array, array.itemsize, comm=comm)
    window.Lock_all(MPI.MODE_NOCHECK)
    try:
        yield window
    finally:
        window.Unlock_all()
        window.Free()


def enter(op: Collective, comm: Any, y: Array, barrier: Callable[[], None]) -> None:
    """A barrier of `comm`: who has entered is counted at its rank 0, and read on leaving.

    A rank counts itself before it enters. So whoever reads less than all has left too early; and
    one rank is late, or nobody would have a chance to.
    """
    entered, late = np.zeros(comm.size), op.order % comm.size
    with _window(entered, comm) as window:
        if comm.rank == late:
            time.sleep(LATE)
        _access(Accumulate(0, np.ones(1), comm.rank), window)
        barrier()
        seen = np.zeros(comm.size)
        _access(Get(0, seen), window)
        comm.Barrier()  # the window is read before it goes
    y[...] = seen


def _wait(request: Any, status: Any, recv: Recv, rank: int, number: int) -> None:
    room = volume(recv.into)
    try:
        request.Wait(status)
    except MPI.Exception as error:
        if error.Get_error_class() != MPI.ERR_TRUNCATE:
            raise
        raise WrongSize(recv.source, rank, f"more than {room}", room, number) from None
    if (sent := status.Get_count(MPI.BYTE)) != room:
        raise WrongSize(status.Get_source(), rank, sent, room, number)


def _bytes(array: Array) -> list[Any]:
    return [array.view(np.uint8), MPI.BYTE]


def first(comm: Any, ranks: int) -> Any:
    """The communicator of the first ranks of one, without its guard; `None` at the others."""
    raw = getattr(comm, "raw", comm)
    part = raw.Split(0 if raw.rank < ranks else MPI.UNDEFINED, raw.rank)
    return None if part == MPI.COMM_NULL else part


@dataclass(frozen=True)
class Mpi(Processes):
    """The ranks of an MPI communicator, running these algorithms or the library's own."""

    algorithms: Mapping[str, Algorithm] = field(default_factory=lambda: ALLREDUCE)
    optimizers: Mapping[str, Distributed] = field(default_factory=lambda: DISTRIBUTED)
    schedules: Mapping[str, Mapping[str, Scheduled]] = field(default_factory=lambda: SCHEDULES)
    polls: ClassVar[bool] = True
    """A rank that waits for others uses its core: one that does not is to blame."""

    def about(self, size: int) -> Facts:
        """The MPI library."""
        name, version = MPI.get_vendor()
        return Facts("MPI", f"{name} {'.'.join(map(str, version))}", f"{size} ranks", "processes")

    def dtypes(self, subject: str) -> tuple[str, ...]:
        """Schedules sum whatever NumPy sums; MPI has no datatype for bfloat16, which it moves."""
        name, _, algorithm = subject.rpartition("-")
        sums = algorithm == LIBRARY and (not name or COLLECTIVES[name].adds)
        return tuple(d for d in DTYPES if not sums or d != "bfloat16")

    def allreduce(self, op: Allreduce, contributions: Sequence[Array]) -> Reduced:
        """By a schedule, or by the library. The order of delivery is as it comes."""
        if op.algorithm in self.algorithms:
            return self.run(self.algorithms[op.algorithm].schedule, contributions, op.order)
        mine = contributions[self.comm.rank].copy()
        result = np.empty_like(mine)
        self.comm.Allreduce(mine, result)
        return Reduced(self.shared(result))

    @contextmanager
    def group(self, groups: Groups) -> Iterator[Any]:
        """All ranks, or a communicator of some of them."""
        rank = self.comm.rank
        if groups == (tuple(range(self.comm.size)),):
            yield self.comm
            return
        mine = [number for number, members in enumerate(groups) if rank in members]
        color = mine[0] if mine else MPI.UNDEFINED
        key = groups[color].index(rank) if mine else 0
        part = self.comm.Split(color, key)
        yield part
        if mine:
            part.Free()

    def own(self, op: Collective, place: Place, group: Any, x: Array, y: Array) -> None:
        """MPI's. What it only moves travels as whole numbers, which it has of every size."""
        if op.collective == "barrier":
            enter(op, group, y, group.Barrier)
            return
        if not op.meaning.adds:
            x, y = (part.view(f"u{part.dtype.itemsize}") for part in (x, y))
        OWN[op.collective](Call(group, place.layout, x, y, in_place=op.in_place, other=op.order))

    def run(
        self, program: Program, arrays: Sequence[Array], order: int, *, exposed: bool = False
    ) -> Reduced:
        """The order of delivery is as it comes."""
        rank, size = self.comm.rank, self.comm.size
        mine = arrays[rank].copy()
        with _window(mine, self.comm) if exposed else nullcontext() as window:
            traffic = run(program(rank, size, mine), self.comm, window, self.pending % SERIES)
        return Reduced(self.shared(mine), self.shared(traffic))

    def reducer(self, algorithm: str) -> Callable[[Array], Traffic | None]:
        """The bare allreduce of an array in place, for times: no guard, nothing judged."""
        comm = getattr(self.comm, "raw", self.comm)
        if algorithm in self.algorithms:
            schedule = self.algorithms[algorithm].schedule
            return lambda x: run(schedule(comm.rank, comm.size, x), comm)
        return lambda x: comm.Allreduce(MPI.IN_PLACE, x)

    def part(self, ranks: int) -> Any:
        """The first `ranks` ranks, for times: no guard, nothing judged. None at the others."""
        return first(self.comm, ranks)

    def everywhere(self, values: Mapping[int, Any]) -> list[Any]:
        """Each process has found something for its own rank."""
        return self.shared(values[self.comm.rank])
