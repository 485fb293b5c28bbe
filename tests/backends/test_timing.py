"""A round is what it says, and what was timed can be verified."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.client.client import InProcessClient
from d5test.client.messages import Feed, Raised
from d5test.worker.machine import largest_cache

TINY = Path(__file__).with_name("tiny.py")
FEEDS = [Feed((np.full(5, k, np.float32),)) for k in (3, 5, 7)]


def test_a_round_of_a_tiny_operator(tiny: Any, ops: Any) -> None:
    loops = tiny.start_timing(ops.Scale(factor=3.0), FEEDS)
    assert loops > 100
    assert loops % len(FEEDS) == 0
    start = time.perf_counter()
    rounds = [tiny.time_round() for _ in range(5)]
    outside = time.perf_counter() - start
    inside = sum(r.wall for r in rounds) * loops
    assert 0 < inside < outside
    assert all(r.cpu > 0 and r.switches >= 0 for r in rounds)
    timed = tiny.stop_timing()
    for feed, outputs in zip(FEEDS, timed.outputs, strict=True):
        np.testing.assert_array_equal(outputs[0], 3 * feed.inputs[0])
    assert timed.gradients is None
    assert timed.device_memory is None
    assert timed.resident_memory > 10_000_000


def test_the_loop_count_is_kept_when_it_is_given(tiny: Any, ops: Any) -> None:
    assert tiny.start_timing(ops.Scale(), FEEDS, loops=7) == 7
    assert tiny.time_round().wall > 0
    assert tiny.start_timing(ops.Scale(), FEEDS, loops=2) == 2
    for _ in range(3):
        tiny.time_round()
    timed = tiny.stop_timing()
    assert [outputs[0][0] for outputs in timed.outputs] == [6, 10, 14]


def test_gradients_are_timed_and_returned(tiny: Any, ops: Any) -> None:
    x, y, dy = (np.array(v, np.float32) for v in ([2, 3], [5, -7], [11, 13]))
    tiny.start_timing(ops.Mul(), [Feed((x, y), (dy,))], backward=True, wanted=(1,))
    tiny.time_round()
    timed = tiny.stop_timing()
    np.testing.assert_array_equal(timed.outputs[0][0], x * y)
    assert timed.gradients is not None
    assert timed.gradients[0][0] is None
    np.testing.assert_array_equal(timed.gradients[0][1], dy * x)


@pytest.mark.parametrize(
    ("cold", "long", "made"),
    [(False, False, [2, 0, 1]), (True, False, [0]), (False, True, [0, 1])],
)
def test_a_call_is_made_before_the_clock_starts(
    cold: bool, long: bool, made: list[int], ops: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if long:
        monkeypatch.setattr("d5test.worker.timing.ROUND", 0.0)
    client = InProcessClient(f"{TINY}:Tiny")
    client.start_timing(ops.Scale(), FEEDS, cold=cold, loops=None if cold else 2)
    timing, calls = client._requests.timing, []

    def counted(number: int, call: Any) -> Any:
        return lambda: (calls.append(number), call())[1]

    timing._calls = [counted(k, call) for k, call in enumerate(timing._calls)]
    client.time_round()
    assert calls == made


def test_each_cold_round_is_one_call_behind_a_flush_of_the_caches(ops: Any) -> None:
    client = InProcessClient(f"{TINY}:Tiny")
    assert client.start_timing(ops.Scale(), FEEDS, cold=True) == 1
    buffer = client._requests.timing._written
    assert buffer is not None
    assert buffer.nbytes >= 2 * largest_cache()
    before = buffer[0]
    for _ in range(3):
        client.time_round()
    assert buffer[0] == buffer[-1] == before + 3


def test_no_round_without_a_start(start: Any) -> None:
    with pytest.raises(Raised, match="no timing was started"):
        start("tiny").time_round()


def test_a_gradient_without_upstream_is_refused(tiny: Any, ops: Any) -> None:
    with pytest.raises(Raised, match="needs upstream gradients"):
        tiny.start_timing(ops.Scale(), FEEDS, backward=True)
