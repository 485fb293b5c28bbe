"""Message by message: timelines by hand, and what a schedule may not do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d5test.distributed.communicator import Stuck, WrongSize
from d5test.reference.collectives import ALLREDUCE, ANY, Recv, Schedule, Send
from d5test.simulation.events import Timeline, simulate
from d5test.simulation.ghost import Ghost, Work
from d5test.simulation.machine import Bend, Links, Machine
from tests.distributed import wrong
from tests.simulation.timelines import LOGGP, TIMELINES, ByHand
from tests.simulation.wrong_simulators import SIMULATORS


def differing(simulator: Callable[..., Timeline]) -> list[str]:
    """The timelines that it does not have."""
    return [
        row.name
        for row in TIMELINES
        if tuple(simulator(row.program, row.size, row.items, row.machine, links=row.links).finish)
        != row.finish
    ]


@pytest.mark.parametrize("row", TIMELINES, ids=lambda row: f"{row.name}-{row.items}")
def test_it_is_as_by_hand(row: ByHand) -> None:
    found = simulate(row.program, row.size, row.items, row.machine, links=row.links)
    assert tuple(found.finish) == row.finish


@pytest.mark.parametrize("name", SIMULATORS)
def test_a_wrong_simulator_is_found(name: str) -> None:
    assert differing(SIMULATORS[name])


@pytest.mark.parametrize("algorithm", ALLREDUCE)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 12])
def test_messages_bytes_and_sums_are_those_of_the_formulas(algorithm: str, size: int) -> None:
    row = ALLREDUCE[algorithm]
    for n in (0, 1, size - 1, 12 * size, 12 * size + 5):
        found = simulate(row.schedule, size, n, LOGGP, dtype="float64")
        assert sum(t.messages for t in found.traffic) == row.messages(size)
        assert sum(t.bytes for t in found.traffic) == 8 * row.items(size, n)
        # each sum of p contributions needs p - 1 additions; who forms it twice needs more
        assert sum(found.added) >= 8 * n * (size - 1)
        if algorithm in ("star", "tree", "ring", "pipelined"):
            assert sum(found.added) == 8 * n * (size - 1)


def test_a_link_that_is_wide_enough_costs_nothing_while_one_rank_uses_it() -> None:
    ring = ALLREDUCE["ring"].schedule
    free = simulate(ring, 6, 60, LOGGP)
    linked = simulate(ring, 6, 60, LOGGP, links=Links(3, LOGGP.per_byte))
    assert linked.finish == free.finish


def test_who_waits_for_ever_is_named() -> None:
    def waiting(rank: int, size: int, x: Any) -> Schedule:
        if rank == 1:
            yield Recv(0, x)

    with pytest.raises(Stuck) as stuck:
        simulate(waiting, 2, 3, LOGGP)
    assert stuck.value.whereabouts == [
        "done after 0 steps",
        "in step 1 waits to receive 12 bytes from rank 0",
    ]


def test_a_message_of_the_wrong_size_is_named() -> None:
    with pytest.raises(WrongSize, match="rank 1 sends 8 bytes, rank 0 has room for 12"):
        simulate(wrong.too_short, 2, 3, LOGGP)


def test_who_would_take_from_any_rank_is_told() -> None:
    def open_to_all(rank: int, size: int, x: Any) -> Schedule:
        yield Recv(ANY, x) if rank == 0 else Send(0, x)

    with pytest.raises(ValueError, match="receive 12 bytes from any rank is not modelled"):
        simulate(open_to_all, 2, 3, LOGGP)


def test_work_that_is_not_known_is_not_forgotten() -> None:
    ghost: Any = Ghost(3, "float32", Work())
    with pytest.raises(TypeError):
        np.multiply(ghost, ghost)
    with pytest.raises(TypeError):
        np.sort(ghost)


def test_a_machine_has_no_time_below_zero() -> None:
    with pytest.raises(ValueError, match="gap is -1"):
        Machine(1, 1, gap=-1)
    with pytest.raises(ValueError, match="addition is -1"):
        Machine(1, 1, bends=(Bend(8, 1, -1),))


def test_bends_rise() -> None:
    with pytest.raises(ValueError, match=r"do not rise: \[8, 8\]"):
        Machine(1, 1, bends=(Bend(8, 1, 1), Bend(8, 2, 2)))
