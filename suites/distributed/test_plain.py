"""Ranks in plain form: MPI's own names, a ring and a parameter server of ten lines each.

    mpirun -n 4 pytest suites/distributed/test_plain.py      # or: pytest --np=4 ...

`communicator` is mpi4py's, guarded: a rank that fails frees those that wait for it.
"""

from typing import Any

import numpy as np
import pytest


@pytest.mark.mpi
def test_allreduce_by_a_ring(communicator: Any) -> None:
    """Each rank passes on what it was sent, so that it has seen every contribution once."""
    rank, size = communicator.rank, communicator.size
    part = np.arange(5.0) + rank
    total = part.copy()
    for _ in range(size - 1):
        received = np.full(5, np.nan)
        communicator.Sendrecv(part, (rank + 1) % size, recvbuf=received, source=(rank - 1) % size)
        part, total = received, total + received
    np.testing.assert_array_equal(total, size * np.arange(5.0) + sum(range(size)))


@pytest.mark.mpi
def test_a_parameter_server(communicator: Any) -> None:
    """Rank 0 hands out w, and steps with the gradient of each worker, in the order of ranks.

    Worker r pulls w towards r: the same as one process that goes over all workers' samples.
    """
    rank, workers = communicator.rank, range(1, communicator.size)
    w, want, steps, lr = np.zeros(3), np.zeros(3), 8, 2.0**-4
    for _ in range(steps):
        communicator.Bcast(w, root=0)
        if rank > 0:
            communicator.Send(w - rank, dest=0)
        else:
            gradients = [np.full(3, np.nan) for _ in workers]
            for worker, gradient in zip(workers, gradients, strict=True):
                communicator.Recv(gradient, source=worker)
            w = w - lr * np.sum(gradients, 0)
        want = want - lr * np.sum([want - worker for worker in workers], 0)
    communicator.Bcast(w, root=0)
    np.testing.assert_array_equal(w, want)
