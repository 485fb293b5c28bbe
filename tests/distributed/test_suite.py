"""The suite as a user runs it, on communicators of a stranger: what it finds, how it says so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def suite(comm: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "suites/distributed", "-q", "--dtype=float32",
               f"--comm=tests.distributed.communicators:{comm}", *words]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_a_right_one_passes() -> None:
    ran = suite("Right", "--examples=2", "-k", "not first_steps")
    assert ran.returncode == 0, ran.stdout
    assert "failed" not in ran.stdout


@pytest.mark.nightly
def test_a_ring_and_an_average_that_are_wrong_are_found_and_shrunk() -> None:
    ran = suite("WrongRing", "-k", "(ring or decentralised) and not first_steps")
    assert ran.returncode == 1, ran.stdout
    assert "Allreduce(algorithm='ring'): a contribution is not counted once" in ran.stdout
    assert "float32 (1,) at each of 2 ranks" in ran.stdout
    assert "looks like  an average over one rank too few" in ran.stdout
    worst = [line for line in ran.stdout.splitlines() if line.split()[:1] == ["worst"]]
    assert worst
    assert all(re.search(r"  (element \[\d+\] of )?rank \d$", line) for line in worst), worst
    failed = {line for line in ran.stdout.splitlines() if line.startswith("FAILED ")}
    assert len(failed) == 6
    for check in ("values", "agreement", "census", "volume"):
        assert any(f"test_{check}[" in line and "ring" in line for line in failed)
    for check in ("one_step", "sequential"):
        assert any(f"test_{check}[" in line and "-decentralised-f" in line for line in failed)


@pytest.mark.nightly
def test_a_ring_that_is_wrong_trains_wrong() -> None:
    ran = suite("WrongRing", "-k", "first_steps", "--optimizer=decentralised")
    assert ran.returncode == 1, ran.stdout
    assert "the losses are not those of the base optimizer on all ranks' minibatches" in ran.stdout


def test_a_scatter_that_is_wrong_is_found_and_shrunk() -> None:
    ran = suite("WrongScatter", "--collective=scatter", "-k", "positions", "--examples=5")
    assert ran.returncode == 1, ran.stdout
    headline = (
        "Collective(collective='scatter', algorithm='linear', groups=((0, 1),), counts=((1, 1),)"
    )
    assert f"{headline}): a contribution is not where it is due on" in ran.stdout
    assert "where   element [0] at rank 0" in ran.stdout
    assert "got     element [1] of rank 0" in ran.stdout
    assert "want    element [0] of rank 0" in ran.stdout
    (failed,) = [line for line in ran.stdout.splitlines() if line.startswith("FAILED ")]
    assert "test_positions[" in failed
    assert "-scatter-linear-float32" in failed


def test_stuck_ranks_are_found() -> None:
    ran = suite("StuckRing", "-k", "ring and census")
    assert ran.returncode == 1, ran.stdout
    assert "Allreduce(algorithm='ring'): the ranks are stuck" in ran.stdout
    for rank in (0, 1):
        assert f"rank {rank}  in step 1 waits to send 0 bytes to rank {1 - rank}" in ran.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nccl", "unknown communicator 'nccl'"),
        ("nowhere:Comm", "cannot be loaded"),
        ("tests.distributed.communicators:planted", "is not a class"),
    ],
)
def test_a_name_that_is_not_there_is_one_line(name: str, said: str) -> None:
    command = [sys.executable, "-m", "pytest", "suites/distributed", f"--comm={name}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 4
    assert said in ran.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("brodcast", "unknown collective 'brodcast': did you mean broadcast?"),
        ("scan", "known: broadcast, scatter, gather, allgather, all_to_all, send_receive"),
    ],
)
def test_a_collective_that_is_not_there_is_one_line(name: str, said: str) -> None:
    command = [sys.executable, "-m", "pytest", "suites/distributed", f"--collective={name}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 4
    assert said in ran.stderr


def test_a_collective_that_is_named_is_judged_alone() -> None:
    ran = suite("Right", "--collective=allgather,barrier", "--collect-only")
    ids = [line for line in ran.stdout.splitlines() if "test_collectives.py::" in line]
    subjects = {line.partition("[")[2].split("-")[1] for line in ids if "NOTSET" not in line}
    assert subjects == {"allgather", "barrier"}
    assert (
        "test_allreduce.py::test_values[tests.distributed.communicators:Right-NOTSET]"
        in ran.stdout
    )
