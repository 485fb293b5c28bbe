"""MPI's own collectives, by the names of `d5test.reference.semantics`.

Where counts are equal, the call that has no counts; else the one that has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from d5test.reference.semantics import Layout


@dataclass(frozen=True)
class Call:
    """What a rank calls a collective with.

    x, y      what it has, and what is filled; in place they overlap
    other     where MPI has two calls that do the same, an odd number takes the second
    """

    comm: Any
    layout: Layout
    x: Any
    y: Any
    in_place: bool
    other: int = 0

    @property
    def rank(self) -> int:
        """By the count of the group."""
        return int(self.comm.rank)

    @property
    def root(self) -> int:
        """The rank that has or gets all."""
        return self.layout.root

    @property
    def at_root(self) -> bool:
        """Whether this rank is the root."""
        return self.rank == self.root

    @property
    def counts(self) -> list[int]:
        """A list: mpi4py takes a tuple for counts and where blocks begin."""
        return list(self.layout.counts)

    @property
    def equal(self) -> bool:
        """Whether the call without counts will do."""
        return len(set(self.counts)) == 1

    @property
    def own(self) -> Any:
        """What it has, or that this is where the result goes."""
        return MPI.IN_PLACE if self.in_place else self.x


def _broadcast(call: Call) -> None:
    if call.at_root:
        call.y[...] = call.x
    call.comm.Bcast(call.y, root=call.root)


def _scatter(call: Call) -> None:
    into = MPI.IN_PLACE if call.in_place and call.at_root else call.y
    if call.equal:
        call.comm.Scatter(call.x if call.at_root else None, into, root=call.root)
    else:
        given = [call.x, call.counts] if call.at_root else None
        call.comm.Scatterv(given, into, root=call.root)


def _gather(call: Call) -> None:
    own = call.own if call.at_root else call.x
    if call.equal:
        call.comm.Gather(own, call.y if call.at_root else None, root=call.root)
    else:
        into = [call.y, call.counts] if call.at_root else None
        call.comm.Gatherv(own, into, root=call.root)


def _allgather(call: Call) -> None:
    if call.equal:
        call.comm.Allgather(call.own, call.y)
    else:
        call.comm.Allgatherv(call.own, [call.y, call.counts])


def _all_to_all(call: Call) -> None:
    if call.equal:
        call.comm.Alltoall(call.own, call.y)
        return
    row, column = call.layout.row(call.rank), call.layout.column(call.rank)
    given = MPI.IN_PLACE if call.in_place else [call.x, list(row)]
    call.comm.Alltoallv(given, [call.y, list(column)])


def _send_receive(call: Call) -> None:
    size = call.layout.size
    to, source = (call.rank + call.root) % size, (call.rank - call.root) % size
    if call.in_place:
        call.comm.Sendrecv_replace(call.y, to, source=source)
    elif call.other % 2 == 0:
        call.comm.Sendrecv(call.x, to, recvbuf=call.y, source=source)
    else:
        sent = call.comm.Isend(call.x, to)
        call.comm.Recv(call.y, source)
        sent.Wait()


def _reduce(call: Call) -> None:
    own = call.own if call.at_root else call.x
    call.comm.Reduce(own, call.y if call.at_root else None, root=call.root)


def _allreduce(call: Call) -> None:
    call.comm.Allreduce(call.own, call.y)


def _reduce_scatter(call: Call) -> None:
    into = call.x if call.in_place else call.y
    if call.equal:
        call.comm.Reduce_scatter_block(call.own, into)
    else:
        call.comm.Reduce_scatter(call.own, into, call.counts)


OWN: Mapping[str, Callable[[Call], None]] = {
    "broadcast": _broadcast,
    "scatter": _scatter,
    "gather": _gather,
    "allgather": _allgather,
    "all_to_all": _all_to_all,
    "send_receive": _send_receive,
    "reduce": _reduce,
    "allreduce": _allreduce,
    "reduce_scatter": _reduce_scatter,
}
"""By name. A barrier fills nothing."""
