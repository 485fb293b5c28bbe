"""Visits: spread over the run, in an order that is drawn, and nobody else's when one breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.client.messages import Crashed, Round
from d5test.timed import BRIEF, Subject
from d5test.visits import Plan, Visited, Visits, power_of_two

LOOPS = 8 * BRIEF
WORK = 5e-5
"""Seconds for the work that tells the machine's pace."""
PLAN = Plan(processes=3, most=12, least=3, seconds=1.0, span=12.0, turns=5, few=2, stay=1.0)


@dataclass
class Machine:
    """One whose time is counted, and which is slower by a factor between two moments.

    costs   seconds of a round, by benchmark
    device  where they are timed
    layout  by how much each process is slower, in the order in which they are opened
    breaks  what a benchmark raises, by its name
    wrong   processes that compute something else
    log     when which process was visited for what
    """

    costs: dict[str, float]
    device: str = "cpu"
    slow: tuple[float, float, float] = (0, 0, 1)
    layout: dict[int, float] = field(default_factory=dict)
    breaks: dict[str, Exception] = field(default_factory=dict)
    wrong: set[int] = field(default_factory=set)
    now: float = 0.0
    opened: int = 0
    log: list[tuple[float, int, str]] = field(default_factory=list)
    loops: set[int | None] = field(default_factory=set)
    closed: list[int] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)

    def several(self, backend: str, count: int) -> list[Process]:
        self.opened += count
        return [Process(self, k) for k in range(self.opened - count, self.opened)]

    def subjects(self) -> list[Subject]:
        return [Subject(name, "mine", self._made(name)) for name in self.costs]

    def _made(self, name: str) -> Callable[[Any, str], Any]:
        return lambda client, _: Benchmark(self, name, client.number)

    @property
    def factor(self) -> float:
        first, last, factor = self.slow
        return factor if first <= self.now < last else 1

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

    @property
    def about(self) -> Any:
        return SimpleNamespace(device=self.machine.device)

    def invoke(self, target: str, *given: int) -> Any:
        if target == "d5test.worker.machine:work":
            return "a loop"
        if target == "d5test.worker.machine:pace":
            return WORK * self.machine.factor
        assert target == "d5test.worker.machine:pad"
        assert given[0] > 0
        return None


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
            self.machine.loops.add(loops)
        return loops or LOOPS

    def round(self) -> Round:
        seconds = self.machine.costs[self.name] * self.machine.layout.get(self.process, 1)
        seconds *= self.machine.factor
        self.machine.now += seconds
        return Round(seconds, seconds, 0)

    def record(self, rounds: Sequence[Round], loops: int) -> dict[str, Any]:
        wrong = self.process in self.machine.wrong
        return {
            "seconds": [r.wall for r in rounds],
            "loops": loops,
            "memory": {"resident": 1000 + self.process},
            "judgement": {"right": not wrong, "ratio": 7.0 if wrong else 0.5},
            "valid": not wrong,
        }

    def close(self) -> None:
        self.machine.given_back.append(self.name)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine({"a": 1e-3, "b": 1e-3})
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    monkeypatch.setattr(time, "sleep", found.sleep)
    return found


def visits(machine: Machine, runs: int = 2, **more: Any) -> Visits:
    return Visits(machine.several, runs, np.random.default_rng(0), PLAN, **more)  # type: ignore[arg-type]


def least(visited: Visited) -> list[float]:
    return [min(visited.entry["seconds"]), *visited.entry["control"]]


def test_each_run_has_fresh_processes_and_spreads_its_visits(machine: Machine) -> None:
    found = visits(machine).measure(machine.subjects())
    assert set(found) == {"a", "b"}
    assert machine.closed == [2, 1, 0, 5, 4, 3]
    for process in range(6):
        times = [when for when, k, name in machine.log if (k, name) == (process, "a")]
        assert len(times) == PLAN.most
        assert np.diff(times) == pytest.approx(PLAN.span / PLAN.most, rel=0.1)


def test_a_slow_phase_and_a_slow_layout_are_in_no_runs_least(machine: Machine) -> None:
    machine.slow, machine.layout = (0.0, 8.0, 1.4), {0: 1.2, 3: 1.1, 4: 1.1}
    for visited in visits(machine).measure(machine.subjects()).values():
        assert least(visited) == pytest.approx([1e-3, 1e-3])
        assert max(r.wall for r in visited.rounds[0]) == pytest.approx(1.4 * 1.2e-3)


def test_a_run_that_is_slow_throughout_is_seen(machine: Machine) -> None:
    machine.layout = dict.fromkeys((3, 4, 5), 1.1)
    for visited in visits(machine).measure(machine.subjects()).values():
        assert least(visited) == pytest.approx([1e-3, 1.1e-3])


def test_a_machine_that_became_slower_is_its_pace(machine: Machine) -> None:
    before = visits(machine, runs=1).measure(machine.subjects())
    machine.slow = (machine.now, 1e9, 1.3)
    after = visits(machine, runs=1).measure(machine.subjects())
    for name in machine.costs:
        old, new = before[name].entry, after[name].entry
        assert min(new["seconds"]) == pytest.approx(1.3 * min(old["seconds"]))
        assert new["paced"]["work"] == old["paced"]["work"] == "a loop"
        assert new["paced"]["paces"] == pytest.approx([1.3 * WORK])
        assert new["paced"]["times"] == pytest.approx(old["paced"]["times"])


def test_processes_that_are_slow_are_not_the_machines_pace(machine: Machine) -> None:
    machine.layout = dict.fromkeys((3, 4, 5), 1.1)
    for visited in visits(machine).measure(machine.subjects()).values():
        assert visited.entry["paced"]["times"] == pytest.approx([1e-3 / WORK, 1.1e-3 / WORK])


def test_another_device_has_a_pace_of_its_own(machine: Machine) -> None:
    machine.device = "cuda"
    for visited in visits(machine).measure(machine.subjects()).values():
        assert visited.entry["paced"] is None
        assert least(visited) == pytest.approx([1e-3, 1e-3])


def test_the_order_of_a_pass_is_drawn(machine: Machine) -> None:
    visits(machine).measure(machine.subjects())
    places = [(k, name) for _, k, name in machine.log]
    passes = [tuple(places[k : k + 6]) for k in range(0, len(places), 6)]
    assert all(len(set(one)) == 6 for one in passes)
    assert len(set(passes)) > len(passes) / 2


def test_all_make_the_same_calls_in_a_round_and_the_first_run_is_recorded(
    machine: Machine,
) -> None:
    found = visits(machine).measure(machine.subjects())
    assert machine.loops == {LOOPS // BRIEF}
    for visited in found.values():
        assert visited.entry["seconds"] == [r.wall for r in visited.rounds[0]]
        assert visited.entry["loops"] == LOOPS // BRIEF
        made = PLAN.processes * PLAN.turns * PLAN.most
        assert [len(rounds) for rounds in visited.rounds] == [made, made]


@pytest.mark.parametrize(
    ("number", "power"), [(0.1, 1), (1.0, 1), (1.4, 1), (1.5, 2), (5.0, 4), (6.0, 8), (47.0, 64)]
)
def test_calls_of_a_round_are_a_power_of_two(number: float, power: int) -> None:
    assert power_of_two(number) == power


def test_long_rounds_are_few(machine: Machine) -> None:
    machine.costs = {"a": 0.9}
    (visited,) = visits(machine).measure(machine.subjects()).values()
    fewest = PLAN.processes * PLAN.few * PLAN.least
    assert [len(rounds) for rounds in visited.rounds] == [fewest, fewest]
    assert len(visited.entries) == 2


def test_other_runs_are_in_the_record(machine: Machine) -> None:
    for visited in visits(machine, runs=3).measure(machine.subjects()).values():
        one, *others = visited.entry["memory"]["resident"], *visited.entry["control_resident"]
        assert 1000 <= one < 1003 <= others[0] < 1006 <= others[1] < 1009
        assert visited.entry["valid"]


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_run_that_is_wrong_is_no_control(machine: Machine, wrong: int) -> None:
    machine.wrong = set(range(3 * wrong, 3 * wrong + 3))
    for visited in visits(machine, runs=3).measure(machine.subjects()).values():
        assert visited.entry["judgement"] == {"right": False, "ratio": 7.0}
        assert not visited.entry["valid"]


@pytest.mark.parametrize("error", [Unsupported("no"), Crashed("SIGSEGV", "call")])
def test_what_breaks_is_told_and_the_others_go_on(machine: Machine, error: Exception) -> None:
    machine.breaks = {"a": error}
    found = visits(machine).measure(machine.subjects())
    assert found["a"].broken is error
    assert found["a"].entries == []
    assert found["b"].broken is None
    assert len(found["b"].entries) == 2
    assert machine.given_back.count("a") == 1


@pytest.mark.parametrize(("budget", "judged"), [(9.0, True), (0.0, False)])
def test_a_budget_is_kept(machine: Machine, budget: float, *, judged: bool) -> None:
    machine.now = 1.0
    machine.costs = {"a": 0.1}
    found = visits(machine, until=budget).measure(machine.subjects())
    assert machine.now <= max(budget, 1.0)
    assert (set(found) == {"a"}) is judged
    assert all(len(visited.entries) == 2 for visited in found.values())
