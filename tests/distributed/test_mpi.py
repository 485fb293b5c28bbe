"""The suite under mpirun, from outside; and what is wrong on purpose, on processes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")


def under_mpirun(
    ranks: int, *words: str, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """A module; what it raises on one rank ends all ranks."""
    command = [str(MPIRUN), "-n", str(ranks), sys.executable, "-m", "mpi4py", "-m", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False, env=env
    )


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_suite_passes(ranks: int) -> None:
    ran = under_mpirun(
        ranks,
        "pytest",
        "suites/distributed",
        "--examples=2",
        "--dtype=float32",
        "--comm=mpi",
        "-k",
        "ring or decentralised or asynchronous",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) >= 12


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("ring:last_step_skipped:census", "a contribution is not counted once"),
        ("ring:chunks_swapped:values", "a rank has a wrong sum"),
        ("star:own_order:agreement", "ranks have different results"),
        ("star:everything_sent:volume", "it does not send what it should"),
        ("tree:too_short:values", "a message has the wrong size"),
    ],
)
def test_what_is_wrong_is_found_on_processes(planted: str, said: str) -> None:
    ran = under_mpirun(3, "tests.distributed.planted_under_mpi", planted)
    assert said in ran.stdout, ran.stdout + ran.stderr


def test_wrong_collectives_are_found_on_processes() -> None:
    ran = under_mpirun(3, "tests.distributed.collectives_under_mpi")
    assert ran.stdout.splitlines() == [
        "NobodyWaits barrier-library entry: barrier",
        "Mpi barrier-library entry: nothing",
        "WrongRoot broadcast-library moves: data",
        "AddsTwice reduce_scatter-library positions: census",
        "AddsTwice allreduce-library sums: value",
        "OtherGroup allgather-library positions: census",
        "Mpi scatter-linear positions: census",
        "Mpi all_to_all-pairwise moves: data",
        "Mpi barrier-dissemination entry: barrier",
        "Mpi reduce-binomial sums: mutated",
        "Mpi reduce_scatter-ring positions: census",
        "Mpi broadcast-binomial cost: volume",
    ], ran.stdout + ran.stderr


@pytest.mark.nightly
def test_a_barrier_of_gloo_at_which_nobody_waits_is_found() -> None:
    pytest.importorskip("torch")
    ran = under_mpirun(3, "tests.distributed.collectives_under_mpi", "gloo")
    assert "gloo's barrier: nothing; none: barrier" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.nightly
def test_a_rank_that_sleeps_in_gloo_is_named_when_the_others_have_left() -> None:
    pytest.importorskip("torch")
    plugin = ("-p", "tests.distributed.sleeping_in_gloo")
    test = "suites/distributed/test_allreduce.py::test_values"
    ran = under_mpirun(3, "pytest", *plugin, test, "--comm=gloo", "--dtype=float32")
    assert ran.returncode != 0
    told = re.search(r"test_values.*: rank [02] left it, rank 1 hung in a call.*\n.*", ran.stderr)
    assert told is not None, ran.stdout + ran.stderr
    assert "rank 1 stood at" in told[0]
    assert "time.sleep(600)" in told[0]


@pytest.mark.parametrize("ranks", [2, 3])
def test_step_by_step_is_the_schedule_bit_for_bit(ranks: int) -> None:
    pytest.importorskip("sklearn")
    ran = under_mpirun(ranks, "tests.distributed.stepwise_under_mpi")
    assert f"{ranks} of {ranks} equal, {ranks} moved" in ran.stdout, ran.stdout + ran.stderr


def test_a_hook_that_is_wrong_is_found() -> None:
    pytest.importorskip("torch")
    ran = under_mpirun(2, "tests.distributed.hooks_under_mpi")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert dict(line.split(": ") for line in ran.stdout.splitlines()) == {
        "torch's float16": "nothing",
        "torch's PowerSGD": "nothing",
        "not narrow": "volume",
        "divided twice": "value",
        "own alone": "disagreement",
        "no feedback": "value",
        "too many columns": "volume",
        "not compressed": "volume",
    }


@pytest.mark.nightly
def test_an_allreduce_that_nobody_has_awaited_does_not_hang_at_the_end() -> None:
    ran = under_mpirun(2, "tests.distributed.pending_under_mpi")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("over") == 2


def test_a_rank_that_is_ahead_is_not_heard_in_the_schedule_before() -> None:
    ran = under_mpirun(3, "tests.distributed.ahead_under_mpi")
    assert ran.stdout.split() == ["2.0", "20.0"], ran.stdout + ran.stderr
