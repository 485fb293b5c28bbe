"""`suites/distributed --recipe`: what is trained, what is recorded, and which bound was broken."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.test_mpi import MPIRUN, ROOT

SUITE = ROOT / "suites" / "distributed"
SMALL = Path(__file__).with_name("small_recipe.py")


def pytest_in(folder: Path, *words: str, ranks: int = 0) -> subprocess.CompletedProcess[str]:
    """Pytest in a folder, on virtual ranks or under mpirun."""
    launcher = [str(MPIRUN), "-n", str(ranks)] if ranks else []
    command = [*launcher, sys.executable, "-m", "pytest", "-q", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def recorded(folder: Path, optimizer: str, ranks: int) -> list[dict[str, Any]]:
    file = folder / ".d5test" / "recipes" / f"small_recipe-numpy-{optimizer}-{ranks}.json"
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found


def test_the_run_is_that_of_the_recipe(tmp_path: Path) -> None:
    asked = ("--recipe", str(SMALL), "--optimizer=decentralised", "--collect-only")
    ran = pytest_in(tmp_path, str(SUITE), *asked)
    tests = [line.rpartition("::")[2] for line in ran.stdout.splitlines() if "::" in line]
    assert tests == [
        "test_recipe[virtual-decentralised-small_recipe]",
        "test_first_steps[virtual-decentralised]",
    ]


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_recipe_is_trained_and_recorded(tmp_path: Path, ranks: int) -> None:
    if ranks and MPIRUN is None:
        pytest.skip("there is no mpirun")
    optimizers = ("model_averaging", "one_sided")
    ran = pytest_in(
        tmp_path, str(SUITE / "test_recipe.py"), f"--recipe={SMALL}",
        f"--optimizer={','.join(optimizers)}", ranks=ranks,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
    for optimizer, rate in zip(optimizers, (0.125, 0.125 / (ranks or 3)), strict=True):
        (entry,) = recorded(tmp_path, optimizer, ranks or 3)
        assert [run["seed"] for run in entry["runs"]] == [1, 2]
        assert all(run["right"] for run in entry["runs"])
        assert entry["mutable"]["distributed"] == optimizer
        assert entry["mutable"]["ranks"] == (ranks or 3)
        assert entry["mutable"]["optimizer_kwargs"]["lr"] == rate
        for run in entry["runs"]:
            accuracy = run["values"]["test accuracy"]
            assert f"seed {run['seed']}: test accuracy {accuracy:.4g}" in ran.stdout


def test_a_bound_that_is_broken_fails_and_is_recorded(tmp_path: Path) -> None:
    hard = tmp_path / SMALL.name
    hard.write_text(SMALL.read_text().replace("(TEST_ACCURACY, 0.9)", "(TEST_ACCURACY, 1.5)"))
    ran = pytest_in(
        tmp_path, str(SUITE / "test_recipe.py"), f"--recipe={hard}", "--optimizer=centralised"
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "at least 1.5 is wanted" in ran.stdout
    (entry,) = recorded(tmp_path, "centralised", 3)
    assert [run["right"] for run in entry["runs"]] == [False, False]


def test_only_optimizers_that_are_named_are_collected(tmp_path: Path) -> None:
    ran = pytest_in(tmp_path, str(SUITE), "--collect-only", "--optimizer=one_sided")
    ids = [line for line in ran.stdout.splitlines() if "::" in line]
    trained = [name for name in ids if "test_first_steps" in name]
    probed = [name for name in ids if "test_one_step" in name]
    assert len(trained) == 1
    assert len(probed) == 2  # dtypes
    assert all("one_sided" in name for name in (*trained, *probed))
    assert not any("test_recipe" in name for name in ids)


def test_an_optimizer_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    ran = pytest_in(tmp_path, str(SUITE), "--optimizer=decentralized")
    assert ran.returncode == 4
    assert "unknown optimizer 'decentralized': did you mean decentralised" in ran.stderr
