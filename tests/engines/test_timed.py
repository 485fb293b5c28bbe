"""An engine's step is timed, beside that of PyTorch alone, and only if it was right."""

import json
import subprocess
import sys
from dataclasses import replace
from math import nan
from typing import Any

import pytest

from d5test.distributed.scaling import JOINED, KEY, MODES, OWN
from d5test.engines.timed import Cores, Parts, StepOfRank, enough, training_of, wrong
from d5test.engines.work import Work
from tests.distributed.test_mpi import MPIRUN, ROOT, under_mpirun

RIGHT = StepOfRank(0.5, Work(4, 80, frozenset({"float32"})), 80, "same", moved=True, loss=2.0)
SUITE = ("pytest", "suites/distributed/test_time.py", "-k", "engine_scaling", "-rs")


def test_what_is_wrong_has_no_time() -> None:
    assert wrong([RIGHT, RIGHT]) == ""
    assert "have not moved" in wrong([RIGHT, replace(RIGHT, moved=False)])
    assert wrong([replace(RIGHT, loss=nan), RIGHT]) == "the loss is not a number"
    assert wrong([RIGHT, replace(RIGHT, replica="other")]) == "ranks differ after the timed steps"
    assert wrong([RIGHT, replace(RIGHT, due=81)]) == "rank 1 gave 80 bytes in a step, due 81"
    assert wrong([replace(RIGHT, due=None), replace(RIGHT, work=None)]) == ""


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_strong_scaling_splits_the_samples_and_weak_scaling_adds_to_them(ranks: int) -> None:
    strong, weak = (training_of(mode, ranks).case.samples(0, ranks) for mode in MODES)
    assert JOINED - ranks < strong <= JOINED
    assert weak == OWN * ranks


def test_overlap_is_how_much_of_the_shorter_part_is_hidden() -> None:
    step, compute, communication = [4.0, 5.0, 6.0] * 5, [3.0] * 15, [2.0] * 15
    found = Parts(step, compute, communication).to_json()
    assert (found["step"], found["compute"], found["communication"]) == (5.0, 3.0, 2.0)
    assert found["hidden"] == 0.0
    assert found["hidden_interval_95"] == (-0.5, 0.5)
    assert Parts(compute, compute, communication).to_json()["hidden"] == 1.0


@pytest.mark.parametrize(
    ("ranks", "suffice"),
    [
        ([("a", {0, 1}, 1), ("a", {0, 1}, 1)], True),
        ([("a", {0, 1}, 1)] * 3, False),
        ([("a", {0, 1}, 2)] * 2, False),
        ([("a", {0}, 1), ("a", {1}, 1)], True),  # bound
        ([("a", {0}, 1), ("a", {0}, 1)], False),  # to the same one
        ([("a", {0}, 1), ("b", {0}, 1)], True),  # of two hosts
    ],
)
def test_each_thread_has_a_core(ranks: list[tuple[str, set[int], int]], suffice: bool) -> None:
    assert enough([Cores(host, frozenset(c), threads) for host, c, threads in ranks]) == suffice


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, int], Any]:
    """What a run on three ranks writes of two engines, by engine, mode and ranks."""
    if MPIRUN is None:
        pytest.skip("there is no mpirun")
    file = tmp_path_factory.mktemp("times") / "times.json"
    engines = "--engine=torch-ddp,torch-tp"
    ran = under_mpirun(3, *SUITE, engines, f"--benchmark-json={file}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    every = [each["extra_info"][KEY] for each in json.loads(file.read_text())["benchmarks"]]
    return {(each["optimizer"], each["mode"], each["ranks"]): each for each in every}


@pytest.mark.nightly
def test_each_stands_beside_pytorch_alone(written: dict[tuple[str, str, int], Any]) -> None:
    assert len(written) == 2 * len(MODES) * 3
    for (engine, mode, ranks), found in written.items():
        base = written[engine, mode, 1]
        assert found["base"]["samples_per_second"] == base["samples_per_second"]
        assert found["speedup"] == found["samples_per_second"] / base["samples_per_second"]
        assert found["samples"] == training_of(mode, ranks).case.samples(0, ranks)
        assert len(found["compute"]) == len(found["bytes"]) == ranks
        assert "messages_sent" not in found


@pytest.mark.nightly
def test_ddp_gives_its_gradients_and_overlaps(written: dict[tuple[str, str, int], Any]) -> None:
    found = written["torch-ddp", "strong", 2]
    assert found["bytes"] == [4 * found["parameters"]] * 2
    assert written["torch-ddp", "strong", 1]["bytes"] == [0]
    overlap = found["overlap"]
    if overlap is not None:  # each rank has a core
        low, high = overlap["hidden_interval_95"]
        assert low <= overlap["hidden"] <= high
    assert written["torch-tp", "strong", 2]["overlap"] is None


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
def test_a_wrong_engine_is_not_timed() -> None:
    names = {
        "NeverAveraged": "ranks differ after the timed steps",
        "GatheredTwice": "bytes in a step, due ",
        "NotANumber": "the loss is not a number",
    }
    engines = ",".join(f"tests.engines.planted:{name}" for name in names)
    ran = under_mpirun(2, *SUITE, f"--engine={engines}", "-k", "engine_scaling and strong-2")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.count("does not count") >= len(names)
    for name, words in names.items():
        assert any(name in s and words in s for s in ran.stdout.splitlines()), ran.stdout


def test_without_mpirun_nothing_is_timed() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", *SUITE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "not timed: virtual ranks share one process" in ran.stdout
