"""A communicator on which nobody waits for a rank that has left the test.

Requirements: mpi4py's names, arguments and results; a blocking call is its nonblocking variant,
polled together with a probe for a notice that some rank has left; what is abandoned so stays
alive, with its buffers, since MPI may still write there. Calls that have no nonblocking variant
(files, windows, `Split`) are MPI's own: the watchdog has an eye on them.

Importing this module loads MPI: `d5test.distributed.provider.connect` comes first. It costs 0.1 ms
a call (2 ranks, 8 bytes) to 0.35 ms (8 ranks on 2 cores): `raw` is for times.
"""

from __future__ import annotations

import operator
import os
import pickle
import time
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any, Literal, Self

import numpy as np
from mpi4py import MPI

ANY_SOURCE, ANY_TAG = MPI.ANY_SOURCE, MPI.ANY_TAG
Operation = Callable[[Any, Any], Any]
SPINS = 200
"""Polls without a pause, where each rank has a core: a short message takes fewer."""
SHORTEST, LONGEST = 2e-5, 2e-4
"""Seconds of pauses after those: each is twice the one before."""


class Left(BaseException):
    """Another rank has left the test, and this one waited. Not caught by `except Exception`."""


class Notices:
    """What the ranks tell each other when one leaves a test: an empty message to each.

    comm     a communicator of its own, which carries nothing else
    crowded  whether ranks share cores: then a rank that waits leaves its core at once
    """

    def __init__(self, comm: Any, *, crowded: bool = False) -> None:
        self._comm = comm
        self._spins = 0 if crowded else SPINS
        self._sent: list[Any] = []
        self._abandoned: list[Any] = []

    def send(self) -> None:
        """Say that this rank leaves."""
        others = (rank for rank in range(self._comm.size) if rank != self._comm.rank)
        self._sent += [self._comm.Isend([b"", MPI.BYTE], dest=rank) for rank in others]

    def sender(self) -> int | None:
        """A rank that has left, if one has."""
        status = MPI.Status()
        return status.source if self._comm.Iprobe(status=status) else None

    def clear(self, senders: Collection[int]) -> None:
        """Take the notices of these ranks, which have all sent theirs."""
        for rank in senders:
            if rank != self._comm.rank:
                self._comm.Recv([bytearray(), MPI.BYTE], source=rank)
        while self._sent:
            self._sent.pop().Wait()

    def until(self, probe: Callable[[], Any], call: str) -> Any:
        """What `probe` returns once that is true, or raise `Left`."""
        __tracebackhide__ = True
        spins, pause = self._spins, SHORTEST
        while not (result := probe()):
            rank = self.sender()
            if rank is not None and not (result := probe()):
                raise Left(f"waited in {call} when rank {rank} left")
            if result:
                break
            if spins:
                spins -= 1
                os.sched_yield()
            else:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST)
        return result

    def complete(self, request: Any, call: str, status: Any = None) -> None:
        """Wait for a request, or raise `Left`."""
        __tracebackhide__ = True
        try:
            self.until(lambda: MPI.Request.Test(request, status), call)
        except BaseException:
            self._abandoned.append(request)
            raise


class GuardedRequest(MPI.Request):
    """A request whose `Wait` ends when a rank leaves."""

    notices: Notices

    def __new__(cls, request: Any = None, notices: Any = None) -> Self:  # noqa: D102
        self: Self = super().__new__(cls, request)
        self.notices = notices
        return self

    def Wait(self, status: Any = None) -> Literal[True]:  # noqa: N802
        """Wait until it is complete, or raise `Left`."""
        __tracebackhide__ = True
        self.notices.complete(self, "Wait", status)
        return True

    def wait(self, status: Any = None) -> Any:
        """Wait for the object that is received, or until one is sent; or raise `Left`."""
        __tracebackhide__ = True
        _, obj = self.notices.until(lambda: (r := self.test(status))[0] and r, "wait")
        return obj


class Guarded(MPI.Intracomm):
    """An intracommunicator for one test. `MPI.Intracomm` of the same handle is `raw`.

    Calls for any Python object are made of its buffer calls: slower than mpi4py's, since each
    object goes to every rank.
    """

    notices: Notices

    def __new__(cls, comm: Any = None, notices: Any = None) -> Self:  # noqa: D102
        self: Self = super().__new__(cls, comm)
        self.notices = notices
        return self

    @property
    def raw(self) -> Any:
        """The same communicator without a guard: for times."""
        return MPI.Intracomm(self)

    def Dup(self, info: Any = None) -> Guarded:  # noqa: N802
        """Another communicator of the same ranks, guarded as well."""
        comm, request = super().Idup(info)
        self.notices.complete(request, "Dup")
        return Guarded(comm, self.notices)

    def Split(self, color: int = 0, key: int = 0) -> Guarded:  # noqa: N802
        """That of the ranks of one color, guarded as well; MPI's own call makes it."""
        return Guarded(MPI.Intracomm(self).Split(color, key), self.notices)

    def Sendrecv(  # noqa: N802
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Any = None,
    ) -> None:
        """Send and receive at once. The status of MPICH's own `MPI_Isendrecv` has a wrong tag."""
        __tracebackhide__ = True
        received = MPI.Intracomm.Irecv(self, recvbuf, source, recvtag)
        sent = MPI.Intracomm.Isend(self, sendbuf, dest, sendtag)
        self.notices.complete(received, "Sendrecv", status)
        self.notices.complete(sent, "Sendrecv")

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
        self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Any = None
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
        objects = [np.frombuffer(pickle.dumps(obj), np.uint8) for obj in sendobj]
        sent, counts = np.array([obj.size for obj in objects]), np.empty(self.size, np.int64)
        self.Alltoall(sent, counts)
        every = np.empty(counts.sum(), np.uint8)
        self.Alltoallv([np.concatenate(objects), sent], [every, counts])
        ends = np.cumsum(counts)
        return [pickle.loads(part.tobytes()) for part in np.split(every, ends[:-1])]

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


def _nonblocking(name: str) -> str:
    return f"I{name[0].lower()}{name[1:]}"


def _polled(name: str) -> Callable[..., None]:
    start = getattr(MPI.Intracomm, _nonblocking(name))

    def call(self: Guarded, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        statuses = [s for s in (*args, *kwargs.values()) if isinstance(s, MPI.Status)]
        arguments = [argument for argument in args if not isinstance(argument, MPI.Status)]
        kwargs.pop("status", None)
        request = start(self, *arguments, **kwargs)
        self.notices.complete(request, name, statuses[0] if statuses else None)

    call.__name__, call.__doc__ = name, getattr(MPI.Intracomm, name).__doc__
    return call


def _probed(name: str, poll: str) -> Callable[..., Any]:
    def call(
        self: Guarded, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Any = None
    ) -> Any:
        __tracebackhide__ = True
        return self.notices.until(lambda: getattr(self, poll)(source, tag, status), name)

    call.__name__, call.__doc__ = name, getattr(MPI.Intracomm, name).__doc__
    return call


def _started(name: str) -> Callable[..., GuardedRequest]:
    start = getattr(MPI.Intracomm, name)

    def call(self: Guarded, *args: Any, **kwargs: Any) -> GuardedRequest:
        return GuardedRequest(start(self, *args, **kwargs), self.notices)

    call.__name__, call.__doc__ = name, start.__doc__
    return call


PROBES = {"Probe": "Iprobe", "Mprobe": "Improbe", "mprobe": "improbe"}
OWN = ("Agree", "Dup_with_info", "Flush_buffer", "Sendrecv_replace", "Shrink")
"""Left as they are: their nonblocking variants return more than a request, or a wrong status."""
POLLED = tuple(
    name
    for name in dir(MPI.Intracomm)
    if name[0].isupper()
    and hasattr(MPI.Intracomm, _nonblocking(name))
    and name not in (*OWN, *PROBES)
    and name not in vars(Guarded)
)
for _name, _poll in PROBES.items():
    setattr(Guarded, _name, _probed(_name, _poll))
for _name in POLLED:
    setattr(Guarded, _name, _polled(_name))
for _name in (*map(_nonblocking, POLLED), "isend", "issend", "irecv"):
    setattr(Guarded, _name, _started(_name))
