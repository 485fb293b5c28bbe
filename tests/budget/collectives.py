"""Ring allreduce as a schedule against MPI_Allreduce of the same library, 16 MiB on 4 ranks.

Started with mpirun, in processes of their own; all ranks begin together, and the slowest one's
wall time counts. Both work in place, which is the faster of MPI's two forms.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.budget.measure import AGAIN, OURS, THEIRS, Clock, Line, in_turn, ratio

RANKS, BYTES, BOUND = 4, 16 * 2**20, 1.2
ROUNDS = 81
LOOPS = 3
"""Calls that are timed as one, since ranks leave a barrier at different times."""


def lines() -> Iterator[Line]:
    """One, measured in a run of its own."""
    mpirun = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or "mpirun"
    command = [mpirun, "-n", str(RANKS), sys.executable, "-m", __name__]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    times = {name: np.array(values) for name, values in json.loads(ran.stdout).items()}
    what = f"ring allreduce of {BYTES >> 20} MiB on {RANKS} ranks / MPI_Allreduce"
    yield ratio(what, times, BOUND)


def measured() -> dict[str, list[float]]:
    """Seconds a call, arm by arm; the same at every rank."""
    from d5test.distributed.provider import connect, launched

    launch = launched()
    if launch is None:
        raise SystemExit(f"mpirun -n {RANKS} python -m tests.budget.collectives")
    mpi = connect(launch).mpi
    world = mpi.COMM_WORLD
    from d5test.distributed.mpi import run
    from d5test.reference.collectives import ring

    x = np.full(BYTES // 4, 1.0, np.float32)

    def ours() -> None:
        x[:] = 1.0
        run(ring(world.rank, world.size, x), world)

    def theirs() -> None:
        x[:] = 1.0
        world.Allreduce(mpi.IN_PLACE, x)

    arms = {OURS: ours, THEIRS: theirs, AGAIN: theirs}
    clocks = {name: slowest(world, call) for name, call in arms.items()}
    # a number of rounds on which the ranks agree, not a time
    times = in_turn(clocks, rounds=ROUNDS, seconds=0, least=ROUNDS)
    return {name: values.tolist() for name, values in times.items()}


def slowest(world: Any, call: Callable[[], None]) -> Clock:
    """Wall seconds of a call, at the rank where they are most."""

    def timed() -> float:
        world.Barrier()
        start = time.perf_counter()
        for _ in range(LOOPS):
            call()
        seconds = (time.perf_counter() - start) / LOOPS
        return float(max(world.allgather(seconds)))

    return timed


if __name__ == "__main__":
    from d5test.distributed.provider import launched

    found, launch = measured(), launched()
    if launch is not None and launch.rank == 0:
        print(json.dumps(found))
