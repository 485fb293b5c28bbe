"""Workers with one thread take their turns on one core, for as long as it takes."""

import os
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest

from d5test.gate.session import LONGER, SHORT, Rounds, Session
from d5test.gate.versions import ARMS
from tests.compare.files import RIGHT
from tests.gate.versions import World

SEVERAL = Rounds(processes=3, blocks=4, turns=5, seconds=60.0)


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
    (measurement,) = session.measure(world.subjects(1)).values()
    assert set(measurement.entries) == set(ARMS)


def processes(world: World, error: float, count: int = 1) -> int:
    """In how many of each arm they are measured, one arm's blocks as many as the others'."""
    draw = np.random.default_rng(0)
    session = Session(ARMS, world.open, draw, {}, SEVERAL, error)  # type: ignore[arg-type]
    measurements = session.measure(world.subjects(count))
    for measurement in measurements.values():
        (made,) = {
            len(each) for arm, each in measurement.blocks.items() if arm not in measurement.broken
        }
        assert made == sum(measurement.processes)
    opened = [entry[1] for entry in world.log if entry[0] == "open"]
    assert {opened.count(arm) for arm in ARMS} == {
        max(len(b.processes) for b in measurements.values())
    }
    return max(len(measurement.processes) for measurement in measurements.values())


def test_blocks_are_of_several_processes_and_of_more_where_they_differ() -> None:
    assert processes(World(process=0.001), 0.01) == SEVERAL.processes
    most = LONGER * SEVERAL.processes
    assert SEVERAL.processes < processes(World(process=0.02, seed=2), 0.006) < most
    assert processes(World(process=0.5), 0.01) == most


def test_more_processes_take_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of processes."""
    world = World(process=0.5)

    def clock() -> float:
        return sum(entry[:2] == ("close", "new") for entry in world.log)

    monkeypatch.setattr("d5test.gate.session.time.monotonic", clock)
    session = Session(ARMS, world.open, np.random.default_rng(0), {}, SEVERAL, 0.01, until=10.0)  # type: ignore[arg-type]
    (measurement,) = session.measure(world.subjects(1)).values()
    assert SEVERAL.processes < len(measurement.processes) == 6 < LONGER * SEVERAL.processes


def test_the_others_are_not_measured_longer() -> None:
    world = World(process=0.02, noise=0.01, seed=1)
    assert processes(world, 0.01, count=6) > SEVERAL.processes
    times = {f"b{k}": 0 for k in range(6)}
    for entry in world.log:
        if entry[0] == "done":
            times[entry[2]] += 1
    assert min(times.values()) == len(ARMS) * SEVERAL.processes


def test_no_longer_where_there_is_nothing_to_compare() -> None:
    world = World(process=0.5, broken={"b0": "no kernel image"})
    assert processes(world, 0.01) == 1


def test_a_slow_one_has_fewer_blocks_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by an hour with each look at it."""
    monkeypatch.setattr("d5test.gate.session.time.monotonic", partial(next, count(step=3600)))
    session = Session(ARMS, World().open, np.random.default_rng(0), {}, SEVERAL)  # type: ignore[arg-type]
    (measurement,) = session.measure(World().subjects(1)).values()
    assert measurement.processes == [1] * SEVERAL.processes


def test_what_was_wrong_once_stays_wrong() -> None:
    world = World(wrong={"b0": {**RIGHT, "right": False}})

    def opens(arm: str, backend: str) -> Any:
        if sum(entry[:2] == ("open", arm) for entry in world.log):
            world.wrong = {}
        return world.open(arm, backend)

    session = Session(ARMS, opens, np.random.default_rng(0), {}, SEVERAL)
    (measurement,) = session.measure(world.subjects(1)).values()
    assert not measurement.entries["new"]["valid"]
    assert measurement.entries["old"]["valid"]


def test_what_breaks_in_a_later_process_has_no_entry() -> None:
    world = World(broken={"b0": "illegal instruction"}, lasts=4)
    session = Session(ARMS, world.open, np.random.default_rng(0), {}, SEVERAL)  # type: ignore[arg-type]
    (measurement,) = session.measure(world.subjects(1)).values()
    assert set(measurement.entries) == {"old", "control"}
    assert "illegal instruction" in measurement.broken["new"]
