"""`mpirun -n 3 python -m tests.distributed.ahead_under_mpi`: a rank is a schedule ahead of others.

Prints what rank 0 has of each of two cases that are asked at once: it takes from whoever sends
first, rank 1 has sent for both before rank 2 sends for one.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from d5test.distributed.mpi import Mpi
from d5test.numerics.judgement import Judgement
from d5test.reference.collectives import ANY, Recv, Schedule, Send

WORLD = MPI.COMM_WORLD


def added(case: int, rank: int, size: int, x: Any) -> Schedule:
    """Rank 0 adds what the others send, whoever it comes from."""
    if rank:
        time.sleep(0.5 if rank == 2 and case == 0 else 0)
        yield Send(0, x)
        return
    part = np.empty_like(x)
    for _ in range(1, size):
        yield Recv(ANY, part)
        x += part


def asked(comm: Mpi, case: int) -> Callable[[], Judgement]:
    """Each rank but 0 has a digit of its own, and each case a place."""
    arrays = [np.array([10.0**case * min(rank, 1)]) for rank in range(WORLD.size)]
    reduced = comm.run(partial(added, case), arrays, 0)
    return lambda: Judgement(got=float(reduced.results[0][0]))


if __name__ == "__main__":
    comm = Mpi(WORLD)
    outcomes: list[Any] = comm.outcomes([partial(asked, comm, case) for case in (0, 1)])
    if not WORLD.rank:
        print(*(outcome.got for outcome in outcomes), flush=True)
