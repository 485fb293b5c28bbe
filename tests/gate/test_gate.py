"""All stages, on numbers: who is called worse, what it costs, and what is told."""

import time
from pathlib import Path

import pytest

from d5test.compare.output import sentence
from d5test.gate import Gate, Outcome
from d5test.gate.decider import PAIRS, SESSIONS, Decider
from d5test.gate.outcome import outcome
from d5test.gate.session import FULL
from d5test.gate.versions import ARMS
from d5test.metric import RESIDENT, TIME
from d5test.report import Report, page, verify
from tests.compare.files import RIGHT
from tests.gate.versions import World


def gated(world: World, folder: Path, count: int = 6, **options: object) -> Outcome:
    gate = Gate(world.open, **options)  # type: ignore[arg-type]
    found = outcome(gate.measure(world.subjects(count)), gate.decider.effect, folder)
    assert found is not None
    return found


def verdict(found: Outcome, k: int, metric: str = "time") -> str:
    (one,) = (d for d in found.of(f"suite.py::test_time[b{k}]") if d.values.metric.name == metric)
    return one.verdict


def test_identical_code_passes_in_little_more_than_a_session(tmp_path: Path) -> None:
    world = World()
    found = gated(world, tmp_path, 20)
    assert found.comparison.verdict == "passed"
    done = [entry for entry in world.log if entry[0] == "done"]
    assert len(done) <= 1.5 * len(ARMS) * FULL.processes * 20


def test_a_slowdown_is_worse_and_an_improvement_better(tmp_path: Path) -> None:
    found = gated(World(slower={"b1": 1.05, "b3": 1 / 1.06}), tmp_path)
    assert [verdict(found, k) for k in range(6)] == ["same", "worse", "same", "better"] + [
        "same"
    ] * 2
    (worse,) = (d for d in found.comparison.decisions if d.verdict == "worse")
    assert worse.change == pytest.approx(0.05, abs=0.01)
    assert "pairs of fresh processes" in worse.reason
    assert sentence(found.comparison).startswith("REGRESSED: 1 worse (time of b1 +")


def test_what_is_obvious_needs_no_pairs(tmp_path: Path) -> None:
    world = World(fatter={"b2": 2}, slower={"b3": 3, "b4": 0.2})
    found = gated(world, tmp_path)
    assert verdict(found, 2, RESIDENT.name) == "worse"
    assert [verdict(found, k) for k in range(6)] == ["same"] * 3 + ["worse", "better", "same"]
    assert found.findings.tests == 0
    assert len(found.findings.measurements) < SESSIONS


def test_lost_accuracy_is_worse_at_once(tmp_path: Path) -> None:
    world = World(wrong={"b4": {**RIGHT, "ratio": 0.5}})
    found = gated(world, tmp_path)
    assert verdict(found, 4, "error / bar") == "worse"
    assert found.findings.tests == 0


def test_wrong_outputs_have_no_time(tmp_path: Path) -> None:
    found = gated(World(wrong={"b0": {**RIGHT, "right": False, "ratio": 3.0}}), tmp_path)
    assert verdict(found, 0, "right") == "worse"
    assert verdict(found, 0) == "unsure"
    assert verdict(found, 1) == "same"


def test_what_the_new_version_cannot_run_has_vanished_with_the_reason(tmp_path: Path) -> None:
    found = gated(World(broken={"b5": "no kernel image"}), tmp_path)
    assert "no kernel image" in found.vanished("suite.py::test_time[b5]")
    assert found.comparison.verdict == "regressed"


def test_what_fails_in_a_later_process_has_not_passed(tmp_path: Path) -> None:
    slower = {"b1": 1.2, "b3": 1.2}
    sessions = 3 * SESSIONS * FULL.processes
    world = World(slower=slower, broken={"b1": "illegal instruction"}, lasts=sessions + 2)
    found = gated(world, tmp_path)
    assert "in new-pair-2: RuntimeError" in found.vanished("suite.py::test_time[b1]")
    assert found.comparison.verdict == "regressed"


@pytest.mark.nightly
def test_noise_is_unsure_with_what_could_have_been_seen(tmp_path: Path) -> None:
    found = gated(World(process=0.2), tmp_path, 8, decider=Decider())
    unsure = [d for d in found.comparison.decisions if d.verdict == "unsure"]
    assert unsure
    assert all(d.detectable is not None and d.detectable > 0.05 for d in unsure)
    assert not any(d.verdict == "worse" for d in found.comparison.decisions)


def test_the_budget_ends_it_and_suspects_stay_unsure(tmp_path: Path) -> None:
    world = World(slower={"b1": 1.15})
    told: list[str] = []
    clock = time.monotonic

    def tell(line: str) -> None:
        told.append(line)
        if line.startswith("pair 2"):
            gate.budget = 0.0
            run_out.setattr("d5test.gate.gate.time.monotonic", lambda: clock() + 3600)

    with pytest.MonkeyPatch.context() as run_out:
        gate = Gate(world.open, budget=1800.0, tell=tell)
        findings = gate.measure(world.subjects(4))
        found = outcome(findings, gate.decider.effect, tmp_path)
    assert found is not None
    assert findings.spent
    assert told[-1].startswith("pair 2")
    assert verdict(found, 1) == "unsure"
    assert verdict(found, 0) == "same"


def test_what_the_budget_left_out_is_told(tmp_path: Path) -> None:
    gate = Gate(World().open, budget=0.0)
    findings = gate.measure(World().subjects(3))
    assert findings.left == [subject.name for subject in World().subjects(3)]
    assert findings.spent
    assert outcome(findings, 0.05, tmp_path) is None


def test_the_guilty_are_confronted_alone(tmp_path: Path) -> None:
    world = World(slower={"b1": 1.2})
    gated(world, tmp_path)
    done = [entry[2] for entry in world.log if entry[0] == "done"]
    sessions = 3 * SESSIONS * FULL.processes
    assert sessions < done.count("b1") <= sessions + 2 * PAIRS
    assert done.count("b0") <= sessions


def test_all_arms_make_the_same_calls_and_take_turns(tmp_path: Path) -> None:
    world = World()
    gated(world, tmp_path, 1)
    loops = {entry[3] for entry in world.log if entry[0] == "start"} - {"None"}
    assert len(loops) == 1
    rounds = [entry[1] for entry in world.log if entry[0] == "round"]
    assert len(rounds) == 3 * FULL.processes * FULL.blocks * FULL.turns
    turns = [tuple(rounds[k : k + 3]) for k in range(0, len(rounds), 3)]
    pads = [entry[2] for entry in world.log if entry[0] == "pad"]
    assert len(pads) == 3 * len(set(pads)) == 3 * FULL.processes * FULL.blocks
    assert all(sorted(turn) == sorted(ARMS) for turn in turns)
    assert len(set(turns)) == 6
    opened = [entry[1] for entry in world.log if entry[0] == "open"]
    closed = [entry for entry in world.log if entry[0] == "close"]
    assert len(opened) == len(closed)


def test_the_runs_are_benchmark_files(tmp_path: Path) -> None:
    from d5test.compare import read

    found = gated(World(), tmp_path, 2)
    runs = read(str(tmp_path))
    assert {Path(run.path).name for run in runs} >= {"old-1.json", "control-1.json", "new-1.json"}
    assert found.comparison.old[0].entries.keys() == runs[0].entries.keys()


def test_a_page_of_it_is_verified(tmp_path: Path) -> None:
    world = World(slower={"b1": 1.2})
    gate = Gate(world.open)
    found = outcome(gate.measure(world.subjects(3)), 0.05, tmp_path, rounds=64)
    assert found is not None
    text = page(Report(found.old, found.new, 0.05, found.paired, found.rule))
    verified = verify(text)
    assert not verified.differences
    assert verified.count > 3
    assert verify(text.replace("REGRESSED", "PASSED")).differences


def test_evidence_is_of_time_and_memory(tmp_path: Path) -> None:
    found = gated(World(), tmp_path, 1)
    assert {m for ms in found.findings.evidence.values() for m in ms} == {TIME, RESIDENT}
