"""Workers with one thread take their turns on one core, for as long as it takes."""

from __future__ import annotations

import os
from itertools import count

import numpy as np
import pytest

from d5test.gate.session import LONGER, SHORT, Session
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


def blocks(world: World, error: float) -> int:
    draw = np.random.default_rng(0)
    session = Session(ARMS, world.open, draw, {}, SHORT, error)  # type: ignore[arg-type]
    (bout,) = session.measure(world.subjects(1)).values()
    (made,) = {len(each) for arm, each in bout.blocks.items() if arm not in bout.broken}
    return made


def test_what_is_noisy_is_measured_longer() -> None:
    assert blocks(World(process=0.001), 0.01) == SHORT.blocks
    assert SHORT.blocks < blocks(World(process=0.1, seed=1), 0.01) < LONGER * SHORT.blocks
    assert blocks(World(process=0.3), 0.01) == LONGER * SHORT.blocks


def test_no_longer_where_there_is_nothing_to_compare() -> None:
    world = World(process=0.3, broken={"b0": "no kernel image"})
    assert blocks(world, 0.01) == SHORT.blocks


def test_nor_than_three_times_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by half of a bout's first seconds with each look at it."""
    ticks = count(step=SHORT.seconds * len(ARMS) / 2)
    monkeypatch.setattr("d5test.gate.session.time.monotonic", lambda: next(ticks))
    assert SHORT.least < blocks(World(process=0.3), 0.01) < SHORT.blocks
