"""torch.distributed's own allreduce, by its backend gloo, in the processes that mpirun started.

MPI only introduces the processes to each other (rank 0 says at which port it listens), and brings
the results together to be judged.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from d5test.case import dtype_of
from d5test.distributed.communicator import (
    DTYPES,
    LIBRARY,
    Allreduce,
    Array,
    Facts,
    Processes,
    Reduced,
)

RENDEZVOUS = timedelta(seconds=60)
"""How long a rank is waited for that has yet to join: it may share its core with many."""
COLLECTIVE = timedelta(seconds=15)
"""How long gloo waits in a collective for a rank that does not come. Its ranks sleep while they
wait, so that nobody sees which of them sleeps for ever: those that waited leave, and it is left.
"""

TOLD = 5.0
"""Seconds from the end of a connection until the rank at its other end says that it has left."""


@contextmanager
def joined(comm: Any) -> Iterator[None]:
    """A process group with the ranks of the MPI communicator `comm`, as long as it is needed."""
    store = None
    if not comm.rank:
        store = dist.TCPStore("127.0.0.1", 0, comm.size, True, RENDEZVOUS, False)
    port = comm.bcast(store.port if store else None)
    store = store or dist.TCPStore("127.0.0.1", port, comm.size, False, RENDEZVOUS)
    dist.init_process_group(
        "gloo", store=store, rank=comm.rank, world_size=comm.size, timeout=COLLECTIVE
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


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


@dataclass(frozen=True)
class Gloo(Processes):
    """The default process group."""

    def about(self, size: int) -> Facts:
        """PyTorch."""
        return Facts("torch.distributed", torch.__version__, f"{size} ranks", "gloo")

    def dtypes(self, subject: str) -> tuple[str, ...]:
        """Of its own allreduce."""
        return DTYPES if subject == LIBRARY else ()

    def allreduce(self, op: Allreduce, contributions: Sequence[Array]) -> Reduced:
        """In place, as it does it."""
        mine = contributions[self.comm.rank].copy()
        # torch knows bfloat16, but not NumPy's
        carrier = np.int16 if mine.dtype == dtype_of("bfloat16") else mine.dtype
        tensor = torch.from_numpy(mine.view(carrier)).view(getattr(torch, mine.dtype.name))
        dist.all_reduce(tensor)
        return Reduced(tuple(self.comm.allgather(mine)))

    def reducer(self, algorithm: str) -> Callable[[Array], None]:
        """The bare allreduce of an array in place, for times."""
        return lambda x: dist.all_reduce(torch.from_numpy(x))
