"""The guarded communicator gives what MPI's own gives; a round lasts as long as on the slowest."""

import time
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

SIZES = (0, 1, 7, 1000)


def mine(communicator: Any, size: int) -> Any:
    return np.random.default_rng([size, communicator.rank]).normal(size=size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["Allreduce", "Scan"])
def test_reductions(communicator: Any, name: str, size: int) -> None:
    x, got, want = mine(communicator, size), np.full(size, np.nan), np.full(size, np.nan)
    getattr(communicator, name)(x, got, MPI.MAX)
    getattr(communicator.raw, name)(x, want, MPI.MAX)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("size", SIZES)
def test_messages(communicator: Any, size: int) -> None:
    right = (communicator.rank + 1) % communicator.size
    left = (communicator.rank - 1) % communicator.size
    x, got, status = mine(communicator, size), np.full(size, np.nan), MPI.Status()
    communicator.Sendrecv(x, right, 3, got, left, 3, status)
    assert np.array_equal(got, np.random.default_rng([size, left]).normal(size=size))
    assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (left, 3, size)
    request = communicator.Irecv(got, left, 4)
    communicator.Isend(-x, right, 4).Wait()
    request.Wait(status)
    assert np.array_equal(got, -np.random.default_rng([size, left]).normal(size=size))


def test_objects(communicator: Any) -> None:
    rank, size = communicator.rank, communicator.size
    word = {"rank": rank, "text": "x" * rank}
    assert communicator.allgather(word) == communicator.raw.allgather(word)
    assert communicator.bcast(word, root=size - 1) == communicator.raw.bcast(word, root=size - 1)
    assert communicator.gather(rank, root=1 % size) == communicator.raw.gather(rank, root=1 % size)
    rows = [10 * rank + other for other in range(size)]
    assert communicator.alltoall(rows) == [10 * other + rank for other in range(size)]
    assert communicator.scatter(rows) == rank
    assert communicator.allreduce(rank + 2, MPI.PROD) == communicator.raw.allreduce(
        rank + 2, MPI.PROD
    )
    assert communicator.scan(rank + 1) == (rank + 1) * (rank + 2) // 2
    assert communicator.exscan(rank + 1) == (rank * (rank + 1) // 2 or None)
    request = communicator.irecv(source=(rank - 1) % size, tag=8)
    communicator.send(word, (rank + 1) % size, tag=8)
    assert request.wait()["rank"] == (rank - 1) % size


def test_a_message_left_behind(communicator: Any) -> None:
    communicator.Isend(np.array([666.0]), (communicator.rank + 1) % communicator.size)


def test_is_not_met_by_the_next_test(communicator: Any) -> None:
    assert not communicator.Iprobe()
    copy = communicator.Dup()
    assert type(copy) is type(communicator)
    assert copy.size == communicator.size
    copy.Free()


def test_round(communicator: Any, benchmark: Any) -> None:
    benchmark.pedantic(time.sleep, ((communicator.rank + 1) / 100,), rounds=3)
