"""Scaling: what stands in the JSON of a timed run, and whether its figures fit together."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from d5test.distributed.optimizers import CONSISTENT, NAMED
from d5test.distributed.scaling import JOINED, KEY, MODES, OWN, Scaling, minibatch, sizes
from d5test.networks.zoo.resnet import cifar
from d5test.reference.collectives import ALLREDUCE
from d5test.reference.optimizers import Momentum
from d5test.training.session import learned
from tests.distributed.test_mpi import MPIRUN, ROOT, under_mpirun

RANKS = 3
MESSAGES = {
    "centralised": ALLREDUCE["tree"],
    "decentralised": ALLREDUCE["ring"],
}
"""The optimizers that are timed here, and the algorithm that sends as many messages."""


def entry(ranks: int, compute: tuple[float, ...], base: Any = None) -> Scaling:
    return Scaling(
        "decentralised", "strong", ranks, 64, "net", 5, (0.5, 0.25, 1.0), compute, (2,) * ranks,
        (7, 11, 13)[:ranks], {"name": "torch"}, "MPI", base,
    )  # fmt: skip


def test_sizes_are_powers_of_two_and_the_world() -> None:
    assert [sizes(world) for world in (1, 2, 3, 4, 6, 8)] == [
        (1,), (1, 2), (1, 2, 3), (1, 2, 4), (1, 2, 4, 6), (1, 2, 4, 8),
    ]  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_strong_scaling_splits_a_minibatch_and_weak_scaling_adds_to_it(ranks: int) -> None:
    strong = np.concatenate([minibatch("strong", r, ranks, 1437) for r in range(ranks)])
    weak = np.concatenate([minibatch("weak", r, ranks, 1437) for r in range(ranks)])
    assert sorted(strong) == list(range(JOINED))
    assert sorted(weak) == list(range(ranks * OWN))


def test_costs_are_summed_up_before_a_ratio_is_made() -> None:
    base = entry(1, (0.25,)).summary
    found = entry(3, (0.125, 0.5, 0.25), {**base, "samples_per_second": 32.0}).to_json()
    assert found["median"] == 0.5
    assert found["samples_per_second"] == 128
    assert found["speedup"] == 4
    assert found["load_imbalance"] == 0.5 / (0.875 / 3)
    assert (found["messages_sent"], found["bytes_sent"]) == (6, 31)


def test_no_speedup_without_its_base_case() -> None:
    assert entry(2, (0.25, 0.5)).to_json()["speedup"] is None


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The entries of a run on three ranks."""
    if MPIRUN is None:
        pytest.skip("there is no mpirun")
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    file = tmp_path_factory.mktemp("times") / "times.json"
    ran = under_mpirun(
        RANKS, "pytest", "suites/distributed/test_time.py", "-k", "test_scaling",
        f"--benchmark-json={file}", f"--optimizer={','.join(MESSAGES)}",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "x " in ran.stdout
    entries = json.loads(file.read_text())["benchmarks"]
    return [{**timed["extra_info"][KEY], "data": timed["stats"]["data"]} for timed in entries]


@pytest.mark.nightly
def test_every_mode_and_number_of_ranks_is_there(written: list[dict[str, Any]]) -> None:
    found = {(e["optimizer"], e["mode"], e["ranks"]) for e in written}
    expected = {(o, m, p) for o in MESSAGES for m in MODES for p in (1, 2, RANKS)}
    assert found == expected
    assert len(written) == len(expected)


@pytest.mark.nightly
def test_bytes_and_messages_are_those_of_the_formulas(written: list[dict[str, Any]]) -> None:
    graph = cifar(depth=8, channels=1).graph
    n = sum(graph.parameters[name].size for name in learned(graph))
    for e in written:
        optimizer = CONSISTENT[e["optimizer"]](Momentum())
        assert e["parameters"] == n
        assert e["bytes_sent"] == sum(e["bytes"]) == 4 * optimizer.items(e["ranks"], n, 1)
        assert e["messages_sent"] == MESSAGES[e["optimizer"]].messages(e["ranks"])
        assert len(e["bytes"]) == len(e["messages"]) == len(e["compute"]) == e["ranks"]


@pytest.mark.nightly
def test_rates_follow_from_the_times_of_the_slowest_rank(written: list[dict[str, Any]]) -> None:
    for e in written:
        assert e["seconds"] == e["data"]
        assert e["median"] == median(e["data"])
        assert e["samples"] == (JOINED if e["mode"] == "strong" else OWN * e["ranks"])
        assert e["samples_per_second"] == e["samples"] / e["median"]
        assert e["load_imbalance"] == max(e["compute"]) / float(np.mean(e["compute"]))
        assert 1 <= e["load_imbalance"] <= e["ranks"]
        # a rank's own work is part of the slowest rank's time
        assert 0 < max(e["compute"]) <= float(np.mean(e["data"]))


@pytest.mark.nightly
def test_the_base_case_stands_beside_each_speedup(written: list[dict[str, Any]]) -> None:
    alone = {(e["optimizer"], e["mode"]): e for e in written if e["ranks"] == 1}
    for e in written:
        base = alone[e["optimizer"], e["mode"]]
        assert e["base"] == {name: base[name] for name in e["base"]}
        assert e["base"]["ranks"] == 1
        assert e["speedup"] == e["samples_per_second"] / base["samples_per_second"]


def test_virtual_ranks_are_not_timed() -> None:
    command = [sys.executable, "-m", "pytest", "suites/distributed/test_time.py", "-rs",
               "-k", "test_scaling"]  # fmt: skip
    ran = subprocess.run(command, cwd=Path(ROOT), capture_output=True, text=True, check=False)
    assert "not timed: virtual ranks share one process" in ran.stdout
    assert f"{len(CONSISTENT.keys() - set(NAMED)) * len(MODES)} skipped" in ran.stdout
