"""Rounds are as long as they say, and what was timed can be verified."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.backends.client import Feed, Raised
from d5test.backends.inprocess import InProcess
from d5test.backends.timing import ROUND

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
    assert 5 * ROUND / 4 < inside < outside
    assert min(r.wall for r in rounds) * loops > ROUND / 4
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


def test_cold_calls_find_nothing_in_the_caches(tiny: Any, ops: Any) -> None:
    feed = Feed((np.ones(1 << 18, np.float32),))

    def best(**options: Any) -> float:
        tiny.start_timing(ops.Scale(), [feed], loops=1, **options)
        return min(tiny.time_round().wall for _ in range(7))

    assert tiny.start_timing(ops.Scale(), [feed], cold=True) == 1
    assert best(cold=True) > best(cold=False)


def test_the_call_path_adds_little(ops: Any) -> None:
    """Against the same function in a loop by hand; the best of each, interleaved."""
    client = InProcess(f"{TINY}:Tiny")
    x = np.full(5, 3, np.float32)
    client.run(ops.Scale(), [Feed((x,))])
    execution = client._verbs.execution
    bound = execution.bind("Scale", {"factor": 2.0})
    loops = client.start_timing(ops.Scale(), [Feed((x,))])
    call, op, indices = bound.row.call, bound.op, range(loops)

    def by_hand() -> float:
        start = time.perf_counter()
        for _ in indices:
            call(op, x)
        return (time.perf_counter() - start) / loops

    ours, theirs = [], []
    for _ in range(80):
        ours.append(client.time_round().wall)
        theirs.append(by_hand())
        if len(ours) >= 10 and min(ours) - min(theirs) < 150e-9:
            break
    assert min(ours) - min(theirs) < 150e-9


def test_no_round_without_a_start(start: Any) -> None:
    with pytest.raises(Raised, match="no timing was started"):
        start("tiny").time_round()


def test_a_gradient_without_upstream_is_refused(tiny: Any, ops: Any) -> None:
    with pytest.raises(Raised, match="needs upstream gradients"):
        tiny.start_timing(ops.Scale(), FEEDS, backward=True)
