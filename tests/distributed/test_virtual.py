"""Virtual ranks: every order of delivery can occur, none that MPI forbids does."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from d5test.distributed.communicator import Stuck, run, shuffled
from d5test.reference.collectives import ALLREDUCE, ANY, Recv, Schedule, Send

FIRST, LAST = (lambda count: 0), (lambda count: count - 1)


def gathering(rank: int, size: int, heard: list[int]) -> Schedule:
    """Rank 0 hears from the others, in the order in which they come."""
    room = np.zeros(1)
    for _ in range(size - 1) if rank == 0 else ():
        source = yield Recv(ANY, room)
        assert room[0] == source
        heard.append(source)
    if rank > 0:
        yield Send(0, np.full(1, float(rank)))


def test_every_order_occurs() -> None:
    orders: Counter[tuple[int, ...]] = Counter()
    for order in range(400):
        heard: list[int] = []
        run([gathering(r, 4, heard) for r in range(4)], shuffled(order))
        orders[tuple(heard)] += 1
    assert len(orders) == 6
    assert min(orders.values()) > 20


def pair(rank: int, got: list[float]) -> Schedule:
    rooms = np.zeros(1), np.zeros(1)
    if rank == 0:
        yield Send(1, np.full(1, 5.0)), Send(1, np.full(1, 7.0))
    else:
        yield Recv(0, rooms[0]), Recv(0, rooms[1])
        got += [float(room[0]) for room in rooms]


@pytest.mark.parametrize("choose", [FIRST, LAST, shuffled(3)])
def test_messages_of_one_tag_do_not_overtake(choose: Any) -> None:
    got: list[float] = []
    run([pair(0, got), pair(1, got)], choose)
    assert got == [5.0, 7.0]


def tagged(rank: int, got: list[float]) -> Schedule:
    room = np.zeros(1)
    if rank == 0:
        yield Send(1, np.full(1, 5.0), tag=1), Send(1, np.full(1, 7.0), tag=2)
    else:
        for tag in (2, 1):
            yield Recv(0, room, tag)
            got.append(float(room[0]))


def test_messages_of_different_tags_do() -> None:
    got: list[float] = []
    run([tagged(0, got), tagged(1, got)], FIRST)
    assert got == [7.0, 5.0]


def test_a_receiver_nobody_sends_to_is_stuck() -> None:
    def waiting(rank: int) -> Schedule:
        if rank == 1:
            yield Recv(ANY, np.zeros(3, np.float32))

    with pytest.raises(Stuck) as stuck:
        run([waiting(0), waiting(1)], FIRST)
    assert stuck.value.whereabouts == [
        "done after 0 steps",
        "in step 1 waits to receive 12 bytes from any rank",
    ]


@pytest.mark.parametrize("algorithm", ALLREDUCE)
@pytest.mark.parametrize("size", [*range(1, 18), 23, 32])
def test_the_formulas_hold(algorithm: str, size: int) -> None:
    row = ALLREDUCE[algorithm]
    for n in (0, 1, 7, size - 1, 96 * size):
        arrays = [np.arange(n, dtype=np.float32) + 3 * rank for rank in range(size)]
        expected = np.sum(arrays, axis=0)
        traffic = run([row.schedule(r, size, x) for r, x in enumerate(arrays)], shuffled(size))
        assert all(np.array_equal(x, expected) for x in arrays)
        assert sum(t.messages for t in traffic) == row.messages(size)
        assert sum(t.bytes for t in traffic) == 4 * row.items(size, n)
        if n == 96 * size:
            assert max(t.bytes for t in traffic) == 4 * row.busiest(size, n)
