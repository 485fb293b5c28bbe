"""All ranks at once has the times of message by message."""

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from d5test.reference.collectives import ALLREDUCE
from d5test.simulation import rounds
from d5test.simulation.events import simulate
from d5test.simulation.machine import Bend, Machine
from tests.simulation.wrong_simulators import ROUNDS

NEAR = 1e-11
"""Both are sums and maxima of times above zero, in other orders: a few thousand roundings, each of
2^-53 of the result; and `SAME`, by which shifts may differ."""
CASES = 40


def cases(seed: str, most: int = 24) -> Iterator[tuple[int, list[int], Machine]]:
    """Ranks, items and machines: chunks equal, unequal and empty; each time may be zero."""
    draw = random.Random(seed)

    def some() -> float:
        return draw.choice([0, 1, draw.random(), 10 * draw.random()])

    for _ in range(CASES):
        p = draw.randint(1, most)
        items = [draw.choice([0, 1, p - 1, p, 3 * p, draw.randrange(400)]) for _ in range(2)]
        sizes = sorted(draw.sample(range(1, 800), draw.choice([0, 0, 1, 3])))
        bends = tuple(Bend(4 * n, some(), some()) for n in sizes)
        machine = Machine(some(), some(), some(), some(), draw.choice([0, some(), 50]), bends)
        yield p, items, machine


def differing(algorithm: str, fast: Callable[..., np.ndarray]) -> str:
    """The first case in which it has another time; empty if there is none."""
    for p, items, machine in cases(algorithm):
        for n, got in zip(items, fast(algorithm, p, items, machine), strict=True):
            want = simulate(ALLREDUCE[algorithm].schedule, p, n, machine).seconds
            if abs(got - want) > NEAR * want:
                return f"{algorithm} of {n} items, {p} ranks, {machine}: {got}, not {want}"
    return ""


def test_every_algorithm_is_there() -> None:
    assert list(rounds.ROUNDS) == list(ALLREDUCE)


@pytest.mark.parametrize("algorithm", ALLREDUCE)
def test_it_is_as_message_by_message(algorithm: str) -> None:
    assert differing(algorithm, rounds.seconds) == ""


@pytest.mark.parametrize("fault", ROUNDS)
def test_a_wrong_one_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, wrong = ROUNDS[fault]
    monkeypatch.setattr(rounds, "ROUNDS", {**rounds.ROUNDS, algorithm: wrong})
    assert algorithm in differing(algorithm, rounds.seconds)


@pytest.mark.parametrize("algorithm", ALLREDUCE)
def test_so_it_is_on_more_ranks(algorithm: str) -> None:
    p = 61 if algorithm == "ring" else 300
    machine = Machine(3e-6, 1e-9, 3e-10, 4e-7, 1e-6)
    want = simulate(ALLREDUCE[algorithm].schedule, p, 7777, machine).seconds
    assert rounds.seconds(algorithm, p, [7777], machine)[0] == pytest.approx(want, rel=NEAR)


@pytest.mark.parametrize("gap", [0, 1e-5])
def test_a_ring_of_65536_ranks_takes_so_many_steps(gap: float) -> None:
    """Equal chunks: 2 (p - 1) messages one after another, and sums between half of them."""
    p, chunk, machine = 65536, 4096, Machine(1e-6, 1e-10, 5e-11, 2e-7, gap)
    step = max(machine.alpha + chunk * 1e-10, gap)
    first = max(machine.alpha + chunk * 1.5e-10, gap)
    (got,) = rounds.seconds("ring", p, [p * chunk // 4], machine)
    if gap:  # of the last step, what the port waits for is not the end
        assert got == pytest.approx((p - 1) * (first + step), rel=1e-4)
    else:
        assert got == pytest.approx((p - 1) * (first + step), rel=NEAR)


def test_a_queue_is_served_in_order() -> None:
    ready = np.array([[0.0, 5.0], [1.0, 0.0], [10.0, 0.0]])
    ends = rounds.queue(ready, np.array([3.0, 1.0]), np.array([2.0, 0.0]))
    assert ends.tolist() == [[5, 6], [8, 7], [13, 8]]
