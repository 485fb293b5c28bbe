"""Workers with one thread take their turns on one core."""

from __future__ import annotations

import os

import numpy as np
import pytest

from d5test.gate.session import SHORT, Session
from d5test.gate.versions import ARMS
from tests.gate.versions import World


@pytest.mark.parametrize(("threads", "pinned"), [(1, 3 * SHORT.blocks), (2, 0)])
def test_all_arms_share_a_core_that_is_drawn(
    monkeypatch: pytest.MonkeyPatch, threads: int, pinned: int
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 7}, raising=False)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda pid, cores: calls.append((pid, *cores)), raising=False
    )
    world = World(threads=threads)
    session = Session(ARMS, world.open, np.random.default_rng(0), {}, SHORT)  # type: ignore[arg-type]
    session.measure(world.subjects(1))
    assert len(calls) == pinned
    blocks = [calls[k : k + 3] for k in range(0, pinned, 3)]
    assert all(len({core for _, core in block}) == 1 for block in blocks)
    assert all(len({pid for pid, _ in block}) == 3 for block in blocks)
    assert len({core for _, core in calls}) == (3 if pinned else 0)


def test_a_worker_that_has_ended_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(pid: int, cores: set[int]) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "sched_setaffinity", gone, raising=False)
    world = World(threads=1)
    session = Session(ARMS, world.open, np.random.default_rng(0), {}, SHORT)  # type: ignore[arg-type]
    (bout,) = session.measure(world.subjects(1)).values()
    assert set(bout.entries) == set(ARMS)
