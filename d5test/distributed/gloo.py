"""torch.distributed's own collectives and hooks, by its backend gloo, in mpirun's processes.

MPI only introduces the processes to each other (rank 0 says where it listens), and brings the
results together to be judged. On several machines gloo takes the interface that PyTorch's
`GLOO_SOCKET_IFNAME` names, or the one to which the name of the host leads.
"""

import gc
import os
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from d5test.case import dtype_of
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
    Reduced,
)
from d5test.distributed.hooked import COLUMNS
from d5test.distributed.meeting import hosts, is_loopback
from d5test.distributed.meshes import forget_meshes
from d5test.reference.semantics import blocks

RENDEZVOUS = timedelta(seconds=60)
"""How long a rank is waited for that has yet to join: it may share its core with many."""
COLLECTIVE = timedelta(seconds=15)
"""How long gloo waits in a collective for a rank that does not come. Its ranks sleep while they
wait, so that nobody sees which of them sleeps for ever: those that waited leave, and it is left.
Engines of jax and TensorFlow wait as long in theirs.
"""

ENDED: deque[tuple[float, Any]] = deque()
"""When process groups ended, and their objects. See `_let_go`."""
KEPT = 8
"""How many groups are kept though their work may last."""
BEGUN = count(1)
"""Numbers process groups."""

TOLD = 5.0
"""Seconds from the end of a connection until the rank at its other end says that it has left."""


@contextmanager
def joined(comm: Any) -> Iterator[Any]:
    """A process group with the ranks of the MPI communicator `comm`, as long as it is needed.

    What is yielded is a table that all ranks reach. Whoever raises within closes its connections:
    objects that outlive it (DDP's reducer) keep them open, and the others would wait.
    """
    _let_go()
    store, (host, *_) = None, hosts(comm.allgather)
    if not comm.rank:
        store = dist.TCPStore(host, 0, comm.size, True, RENDEZVOUS, False)
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore(host, port, comm.size, False, RENDEZVOUS)
    before = _connections(port)
    dist.init_process_group(
        "gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=COLLECTIVE
    )
    own = _connections(port) - before
    comm.barrier()  # a rank that leaves at once would close connections that others are making
    try:
        yield store
    except BaseException:
        # those of later groups as far as they are within the machine: others may be MPI's
        for number in (own & _connections(port)) | (_connections(port, within=True) - before):
            _hang_up(number)
        raise
    finally:
        groups = [*distributed_c10d._world.pg_map]  # noqa: SLF001 (no other name)
        ENDED.append((time.monotonic(), groups))
        dist.destroy_process_group()
        forget_meshes()


def _let_go() -> None:
    """Give up the groups whose work is over.

    The last reference to a group joins its threads. Where DDP's reducer has it, that is done with
    the GIL, for which a thread may wait that frees a gradient: a step that nobody has
    awaited, and the process hangs (torch 2.13). So references are kept until all work of a group
    has ended or is overdue; of many groups, until the garbage collector has freed the reducers.

    Whatever else has a group (a mesh, a wrapped model) keeps its threads, which poll, until it is
    collected. In a run of 640 trainings each rank came to have 2,000 of them. So every few groups
    are collected, however long they took.
    """
    overdue = time.monotonic() - 2 * COLLECTIVE.total_seconds()
    while ENDED and ENDED[0][0] < overdue:
        ENDED.popleft()
    if next(BEGUN) % KEPT == 0:
        gc.collect()
        while len(ENDED) > KEPT:
            ENDED.popleft()


def _connections(port: int, *, within: bool = False) -> set[int]:
    """This process's connections, but for those with the table at a port: their file descriptors.

    `within` this machine only. torch's own `abort` of gloo leaves them open.
    """
    found = set()
    for number in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # it has been closed, or is not connected
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as end:
                if end.family == socket.AF_INET:
                    own, other = end.getsockname(), end.getpeername()
                    inside = is_loopback(own[0]) and is_loopback(other[0])
                    if port not in (own[1], other[1]) and (inside or not within):
                        found.add(number)
    return found


def _hang_up(number: int) -> None:
    # an error says that the other end was faster: gloo's own thread has closed it, too
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as end:
        end.shutdown(socket.SHUT_RDWR)


def raise_if_left(error: Exception, comm: Any) -> None:
    """Raise `Left` if gloo raised since a rank has left the test, of which `comm` hears."""
    from d5test.distributed.guarded import Left

    closed = "gloo/transport" in str(error) and "Timed out" not in str(error)
    until = time.monotonic() + (TOLD if closed else 0.0)
    while "gloo/transport" in str(error):
        rank = comm.notices.sender()
        if rank is not None:
            raise Left(f"waited in gloo when rank {rank} left") from error
        if time.monotonic() >= until:
            return
        time.sleep(0.01)


def _tensor(x: Array) -> Any:
    """The same memory, as a tensor. torch knows bfloat16, but not NumPy's."""
    carrier = np.int16 if x.dtype == dtype_of("bfloat16") else x.dtype
    return torch.from_numpy(x.view(carrier)).view(getattr(torch, x.dtype.name))


@dataclass(frozen=True)
class Call:
    """What a rank calls a collective with: tensors on `x` and `y`.

    Roots and partners are counted among all ranks.
    """

    place: Place
    group: Any
    x: Any
    y: Any

    @property
    def root(self) -> int:
        """By the count of all ranks."""
        return self.place.members[self.place.layout.root]

    @property
    def at_root(self) -> bool:
        """Whether this rank is the root."""
        return self.place.rank == self.place.layout.root

    def parts(self, x: Any) -> list[Any]:
        """One block a rank."""
        return blocks(x, self.place.layout.counts)


def _broadcast(call: Call) -> None:
    if call.at_root:
        call.y.copy_(call.x)
    dist.broadcast(call.y, call.root, call.group)


def _scatter(call: Call) -> None:
    parts = call.parts(call.x) if call.at_root else None
    dist.scatter(call.y, parts, call.root, call.group)


def _gather(call: Call) -> None:
    parts = call.parts(call.y) if call.at_root else None
    dist.gather(call.x, parts, call.root, call.group)


def _allgather(call: Call) -> None:
    dist.all_gather(call.parts(call.y), call.x, call.group)


def _all_to_all(call: Call) -> None:
    layout, rank = call.place.layout, call.place.rank
    given, taken = list(layout.row(rank)), list(layout.column(rank))
    dist.all_to_all_single(call.y, call.x, taken, given, call.group)


def _send_receive(call: Call) -> None:
    members, rank = call.place.members, call.place.rank
    distance, size = call.place.layout.root, call.place.layout.size
    sent = dist.isend(call.x, members[(rank + distance) % size], call.group)
    dist.recv(call.y, members[(rank - distance) % size], call.group)
    if sent is not None:
        sent.wait()


def _reduce(call: Call) -> None:
    # elsewhere than at the root a tensor may be overwritten, too
    total = call.y if call.at_root else torch.empty_like(call.x)
    total.copy_(call.x)
    dist.reduce(total, call.root, group=call.group)


def _allreduce(call: Call) -> None:
    call.y.copy_(call.x)
    dist.all_reduce(call.y, group=call.group)


def _reduce_scatter(call: Call) -> None:
    dist.reduce_scatter(call.y, call.parts(call.x), group=call.group)


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
IN_PLACE = ("broadcast", "reduce", "allreduce")
"""Those that torch.distributed has in no other form."""
ONE_SIZE = ("scatter", "gather", "allgather", "reduce_scatter")
"""Those whose blocks have one size."""


@dataclass(frozen=True)
class Gloo(Processes):
    """The default process group, and the table that introduced its ranks to each other."""

    table: Any = None

    def about(self, size: int) -> Facts:
        """PyTorch."""
        return Facts("torch.distributed", torch.__version__, f"{size} ranks", "gloo")

    def dtypes(self, subject: str) -> tuple[str, ...]:
        """Of its own collectives."""
        return DTYPES if subject.rpartition("-")[2] == LIBRARY else ()

    def allreduce(self, op: Allreduce, contributions: Sequence[Array]) -> Reduced:
        """In place, as it does it."""
        mine = contributions[self.comm.rank].copy()
        dist.all_reduce(_tensor(mine))
        return Reduced(self.shared(mine))

    @contextmanager
    def group(self, groups: Groups) -> Iterator[Any]:
        """The default group, or groups of some ranks, which all ranks make."""
        if groups == (tuple(range(self.comm.size)),):
            yield dist.group.WORLD
            return
        made = [dist.new_group(list(members)) for members in groups]
        mine = [g for g, members in zip(made, groups, strict=True) if self.comm.rank in members]
        yield mine[0] if mine else None
        for group in mine:
            dist.destroy_process_group(group)

    def lacks(self, op: Collective) -> str:
        """Groups in another order, blocks of several sizes, most collectives in place."""
        if any(list(members) != sorted(members) for members in op.groups):
            return "torch.distributed sorts the ranks of a group"
        if op.collective in ONE_SIZE and any(len(set(counts)) > 1 for counts in op.counts):
            return f"{op.collective} of torch.distributed has blocks of one size"
        if op.in_place and op.collective not in IN_PLACE:
            return f"torch.distributed has no {op.collective} in place"
        if op.collective == "send_receive" and any(layout.root == 0 for layout in op.layouts):
            return "gloo sends nothing to the rank itself"
        return ""

    def own(self, op: Collective, place: Place, group: Any, x: Array, y: Array) -> None:
        """Its own, on tensors."""
        if op.collective == "barrier":
            self._enter(op, place, group, y)
            return
        OWN[op.collective](Call(place, group, _tensor(x), _tensor(y)))

    def _enter(self, op: Collective, place: Place, group: Any, y: Array) -> None:
        """Its barrier: who has entered stands in the table, and is read on leaving.

        A rank writes that before it enters. So whoever does not find all has left too early; and
        one rank is late, or nobody would have a chance to.
        """
        keys = [f"{op!r} {rank}" for rank in place.members]
        if place.rank == op.order % len(keys):
            time.sleep(LATE)
        self.table.set(keys[place.rank], "entered")
        dist.barrier(group)
        y[...] = [self.table.check([key]) for key in keys]
        dist.barrier(group)  # the table is read before it is cleared
        self.table.delete_key(keys[place.rank])

    def reducer(self, algorithm: str) -> Callable[[Array], None]:
        """The bare allreduce of an array in place, for times."""
        return lambda x: dist.all_reduce(torch.from_numpy(x))

    def hooked(self, name: str, gradients: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """By DistributedDataParallel, of a linear function, whose gradient is chosen."""
        mine = torch.from_numpy(gradients[self.comm.rank].copy())
        model = DistributedDataParallel(_Told(mine[0]))
        state = hook_state(name)
        model.register_comm_hook(state, HOOKS[name])
        # PowerSGD's hook leaves the first steps uncompressed
        for _ in range(getattr(state, "start_powerSGD_iter", 0)):
            _stepped(model, mine[0])
        means = np.stack([_stepped(model, g) for g in mine])
        owed = getattr(state, "error_dict", {}).get(0, torch.zeros(mine[0].numel()))
        residual = owed.numpy().reshape(mine[0].shape).copy()
        return self.shared(means), self.shared(residual)


class _Told(torch.nn.Module):  # type: ignore[misc]
    """The inner product of a parameter with a matrix, which is its gradient."""

    def __init__(self, like: torch.Tensor) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros_like(like))

    def forward(self, g: torch.Tensor) -> torch.Tensor:
        return (self.w * g).sum()


def _stepped(model: torch.nn.Module, g: torch.Tensor) -> Array:
    """The mean gradient after one step."""
    model.zero_grad()
    model(g).backward()
    (w,) = model.parameters()
    mean: Array = w.grad.numpy().copy()
    return mean


def hook_state(name: str) -> Any:
    """What a hook is registered with."""
    if name == "powerSGD_hook":
        return PowerSGDState(
            None, matrix_approximation_rank=COLUMNS, start_powerSGD_iter=2, min_compression_rate=0
        )
    return None


HOOKS: Mapping[str, Any] = {
    "fp16_compress_hook": fp16_compress_hook,
    "powerSGD_hook": powerSGD_hook,
}
"""The hooks that are judged, by name."""
