"""A schedule that runs alone goes on as often as it does among others."""

import numpy as np
import pytest

from d5test.distributed import alone
from d5test.distributed.alone import own_seconds, run_alone
from d5test.distributed.communicator import run_copies
from d5test.reference.collectives import ALLREDUCE, Schedule


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("algorithm", ALLREDUCE)
def test_it_goes_on_as_often(algorithm: str, size: int) -> None:
    schedule, steps = ALLREDUCE[algorithm].schedule, [0] * size

    def counted(rank: int, size: int, x: np.ndarray) -> Schedule:
        inner, heard = schedule(rank, size, x), None
        while True:
            try:
                step = inner.send(heard)  # type: ignore[arg-type]
            except StopIteration:
                return
            steps[rank] += 1
            heard = yield step

    run_copies(counted, [np.ones(size, np.float32)] * size, 0)
    for rank in range(size):
        x = np.ones(size, np.float32)
        assert run_alone(schedule(rank, size, x), rank, size) == steps[rank]


def test_what_takes_longer_by_itself_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on at each step of a schedule."""
    now = 0.0
    monkeypatch.setattr(alone, "perf_counter", lambda: now)

    def slow(rank: int, size: int, x: np.ndarray) -> Schedule:
        nonlocal now
        for step in ALLREDUCE["ring"].schedule(rank, size, x):
            now += 0.25
            yield step

    assert own_seconds(slow, 0, 3) == pytest.approx(0.25 * 4)
