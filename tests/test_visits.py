"""Visits: spread over the run, in an order that is drawn, and nobody else's when one breaks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.backends.exchange import Crashed, Round
from d5test.timed import BRIEF, Subject
from d5test.visits import Pace, Visits

LOOPS = 10 * BRIEF
PACE = Pace(most=12, least=3, seconds=1.0, span=12.0, turns=5, few=2, stay=1.0)


@dataclass
class Machine:
    """One whose time is counted, and which is `slow` (a factor) between two moments.

    costs   seconds of a round, by benchmark
    breaks  what a benchmark raises, by its name
    log     when which process was visited for what
    """

    costs: dict[str, float]
    slow: tuple[float, float, float] = (0, 0, 1)
    breaks: dict[str, Exception] = field(default_factory=dict)
    now: float = 0.0
    log: list[tuple[float, int, str]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)
    loops: list[int | None] = field(default_factory=list)

    def several(self, backend: str, count: int) -> list[Process]:
        return [Process(self, k) for k in range(count)]

    def subjects(self) -> list[Subject]:
        return [Subject(name, "mine", self._made(name)) for name in self.costs]

    def _made(self, name: str) -> Callable[[Any, str], Any]:
        return lambda client, arm: Benchmark(self, name, int(arm))

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Process:
    machine: Machine
    number: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.machine.closed.append(self.number)

    def invoke(self, target: str, size: int) -> None:
        assert target == "d5test.backends.heap:pad"
        assert size > 0


@dataclass
class Benchmark:
    machine: Machine
    name: str
    process: int

    def start(self, loops: int | None = None) -> int:
        if self.name in self.machine.breaks:
            raise self.machine.breaks[self.name]
        if loops:
            self.machine.log.append((self.machine.now, self.process, self.name))
            self.machine.loops.append(loops)
        return loops or LOOPS

    def round(self) -> Round:
        first, last, factor = self.machine.slow
        seconds = self.machine.costs[self.name]
        seconds *= factor if first <= self.machine.now < last else 1
        self.machine.now += seconds
        return Round(seconds, seconds, 0)

    def record(self, rounds: Sequence[Round], loops: int) -> dict[str, Any]:
        return {"seconds": [r.wall for r in rounds], "loops": loops, "process": self.process}

    def close(self) -> None:
        self.machine.given_back.append(self.name)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine({"a": 1e-3, "b": 1e-3})
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    monkeypatch.setattr(time, "sleep", found.sleep)
    return found


def visits(machine: Machine, processes: int = 3, **more: Any) -> Visits:
    return Visits(machine.several, processes, np.random.default_rng(0), PACE, **more)  # type: ignore[arg-type]


def test_visits_are_spread_over_the_span(machine: Machine) -> None:
    found = visits(machine).measure(machine.subjects())
    assert set(found) == {"a", "b"}
    for process in range(3):
        times = [when for when, k, name in machine.log if (k, name) == (process, "a")]
        assert len(times) == PACE.most
        assert np.diff(times) == pytest.approx(PACE.span / PACE.most, rel=0.1)
    assert machine.closed == [2, 1, 0]


def test_a_slow_phase_is_in_nobodys_least(machine: Machine) -> None:
    machine.slow = (0.0, 8.0, 1.4)
    for visited in visits(machine).measure(machine.subjects()).values():
        assert visited.least == pytest.approx([1e-3] * 3)
        assert max(r.wall for r in visited.rounds[0]) == pytest.approx(1.4e-3)


def test_the_order_of_a_pass_is_drawn(machine: Machine) -> None:
    visits(machine).measure(machine.subjects())
    places = [(k, name) for _, k, name in machine.log]
    passes = [tuple(places[k : k + 6]) for k in range(0, len(places), 6)]
    assert all(len(set(one)) == 6 for one in passes)
    assert len(set(passes)) > PACE.most / 2


def test_all_make_the_same_calls_in_a_round_and_the_first_one_is_recorded(
    machine: Machine,
) -> None:
    found = visits(machine).measure(machine.subjects())
    assert set(machine.loops) == {LOOPS // BRIEF}
    for visited in found.values():
        assert visited.entry == {
            "seconds": [r.wall for r in visited.rounds[0]],
            "loops": LOOPS // BRIEF,
            "process": 0,
        }
        assert Counter(map(len, visited.rounds)) == {PACE.turns * PACE.most: 3}


def test_long_rounds_are_few(machine: Machine) -> None:
    machine.costs = {"a": 0.8}
    (visited,) = visits(machine, processes=2).measure(machine.subjects()).values()
    assert [len(rounds) for rounds in visited.rounds] == [PACE.few * PACE.least] * 2
    assert visited.entry is not None


@pytest.mark.parametrize("error", [Unsupported("no"), Crashed("SIGSEGV", "call")])
def test_what_breaks_is_told_and_the_others_go_on(machine: Machine, error: Exception) -> None:
    machine.breaks = {"a": error}
    found = visits(machine).measure(machine.subjects())
    assert found["a"].broken is error
    assert found["a"].entry is None
    assert found["b"].broken is None
    assert found["b"].entry is not None
    assert machine.given_back.count("a") == 1


@pytest.mark.parametrize(("budget", "judged"), [(5.0, True), (0.0, False)])
def test_a_budget_is_kept(machine: Machine, budget: float, *, judged: bool) -> None:
    machine.now = 1.0
    machine.costs = {"a": 0.1}
    found = visits(machine, until=budget).measure(machine.subjects())
    assert machine.now <= max(budget, 1.0)
    assert (set(found) == {"a"}) is judged
