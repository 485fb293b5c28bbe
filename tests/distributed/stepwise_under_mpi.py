"""`mpirun -n 3 python -m tests.distributed.stepwise_under_mpi`: step by step, or as a schedule?

Prints how many of the ranks have the same bits both ways, after a few steps on digits.
"""

import numpy as np
from mpi4py import MPI

from d5test.case import Array
from d5test.distributed.averaging import NeighbourAveraging
from d5test.distributed.communicator import Virtual
from d5test.distributed.stepwise import Communication, ConsistentNeighbors
from d5test.reference.collectives import Schedule
from d5test.reference.optimizers import Adam
from tests.distributed.test_replica import minibatch, replica

STEPS, BASE = 5, Adam(lr=0.01)
world = MPI.COMM_WORLD

own = replica()
optimizer = ConsistentNeighbors(BASE, own.executor, "loss", Communication(world))
start = own.parameters()
for number in range(STEPS):
    outputs = optimizer.step(minibatch(world.rank, number))
    assert np.isfinite(outputs["loss"])
stepwise = world.allgather(own.parameters())


def program(rank: int, size: int, w: Array) -> Schedule:
    gradient = replica().gradient(lambda step: minibatch(rank, step))
    return NeighbourAveraging(BASE).train(rank, size, w, gradient, STEPS)


if world.rank == 0:
    scheduled = Virtual().run(program, [start] * world.size, 0).results
    equal = sum(np.array_equal(a, b) for a, b in zip(stepwise, scheduled, strict=True))
    moved = sum(not np.array_equal(a, start) for a in stepwise)
    print(f"{equal} of {world.size} equal, {moved} moved")
