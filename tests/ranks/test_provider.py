"""Which MPI it is, read from the environment, without MPI."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from d5test.distributed.provider import Launch, Unusable, connect, launched, library_of

HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}
MV2 = {"RANK": "2", "SIZE": "6", "LOCAL_SIZE": "3"}
MV2 = {f"MV2_COMM_WORLD_{name}": number for name, number in MV2.items()}
PRTE = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "5"}


def test_without_a_launcher_there_is_none() -> None:
    assert launched({"PATH": "/bin", "SLURM_NTASKS": "8"}) is None
    shell = {"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_JOB_ID": "1"}
    assert launched(shell) is None
    assert launched({**shell, "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert launched({"PMIX_RANK": "0"}) is None


STEP = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    ("variables", "numbers", "launcher"),
    [
        (STEP, (2, 4, 4), "srun"),
        (STEP | {"SLURM_PROCID": "0"}, (0, 4, 4), "srun"),
        (STEP | {"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, (2, 4, 2), "srun"),
        ({"PMIX_RANK": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, (0, 3, 3), "srun"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "3"}, (1, 3, 3), "srun"),
        ({"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "5"}, (0, 5, 5), "flux"),
        ({"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "6"}, (1, 6, 6), "jsrun"),
        ({"PMIX_RANK": "3"}, (3, 4, 4), "a launcher with PMIx"),
        ({"PALS_RANKID": "2"}, (2, 3, 3), "PALS"),
        ({"ALPS_APP_PE": "2"}, (2, 3, 3), "aprun"),
        (HYDRA | STEP, (3, 8, 4), "mpirun"),
    ],
)
def test_a_scheduler_starts_ranks_of_any_library(
    variables: dict[str, str], numbers: tuple[int, int, int], launcher: str
) -> None:
    launch = launched(variables)
    assert launch is not None
    assert (launch.rank, launch.size, launch.local) == numbers
    assert launch.launcher == launcher
    assert launch.libraries == ()


@pytest.mark.parametrize("variables", [STEP | {"PMIX_RANK": "2"}, {"PMIX_RANK": "1"}])
def test_a_rank_that_mpi_leaves_alone_is_one_line(
    variables: dict[str, str], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under srun without a matching MPI each rank would be alone, and green on virtual ranks."""
    pytest.importorskip("mpi4py")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ran = pytester.runpytest_subprocess("-p", "d5test.plugin")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("PMIX_RANK", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    ran = pytester.runpytest_subprocess("-p", "d5test.plugin")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = filter(None, ran.errlines)
    assert line.startswith("ERROR: srun started 4 ranks")
    assert "use mpirun, or srun --mpi=pmi2" in line


@pytest.mark.parametrize(
    ("variables", "numbers", "libraries"),
    [
        (HYDRA, (3, 8, 4), ("MPICH", "Intel MPI")),
        (MV2, (2, 6, 3), ("MVAPICH",)),
        (PRTE, (1, 5, 5), ("Open MPI",)),
        (PRTE | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, (1, 5, 2), ("Open MPI",)),
    ],
)
def test_a_launcher_says_who_this_is(
    variables: dict[str, str], numbers: tuple[int, int, int], libraries: tuple[str, ...]
) -> None:
    launch = launched(variables)
    assert launch is not None
    assert (launch.rank, launch.size, launch.local) == numbers
    assert launch.libraries == libraries


@pytest.mark.parametrize(
    ("environment", "ranks", "said"),
    [
        ({"PALS_RANKID": "1"}, 4, "4"),
        ({"PALS_RANKID": "3"}, 3, "PALS started at least 4 ranks, but MPICH"),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "3"}, 4, "flux started 3 ranks, but MPICH"),
    ],
)
def test_a_size_that_no_launcher_states_is_that_of_the_world(
    environment: dict[str, str], ranks: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mpi4py")
    launch = launched(environment)
    assert launch is not None
    world = SimpleNamespace(
        COMM_WORLD=SimpleNamespace(size=ranks),
        Get_library_version=lambda: "MPICH Version: 5.0.2",
        Is_initialized=lambda: True,
    )
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", world)
    monkeypatch.setattr("mpi4py.MPI", world, raising=False)
    try:
        answer = str(connect(launch).launch.size)
    except Unusable as error:
        answer = str(error)
    assert answer.startswith(said)


def test_ranks_share_cores_when_there_are_more_of_them_on_this_machine() -> None:
    assert Launch(0, 64, 3, 2, ()).oversubscribed
    assert not Launch(0, 64, 2, 2, ()).oversubscribed


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("MPICH Version:      5.0.2\nMPICH Release date: ...", "MPICH 5.0.2"),
        ("Open MPI v5.0.11, package: Open MPI user@host, ident: 5.0.11", "Open MPI 5.0.11"),
        ("Intel(R) MPI Library 2021.18 for Linux* OS\n", "Intel MPI 2021.18"),
        ("MVAPICH2 2.3\nmore", "MVAPICH2 2.3"),
    ],
)
def test_the_name_of_a_library(said: str, name: str) -> None:
    class Mpi:
        Get_library_version = staticmethod(lambda: said)

    assert library_of(Mpi) == name


def test_a_launcher_with_the_library_of_another_is_one_line() -> None:
    pytest.importorskip("mpi4py")
    code = f"""
from d5test.distributed import provider
from mpi4py import rc
rc.initialize = False
from mpi4py import MPI
theirs = {HYDRA!r} if provider.library_of(MPI).startswith("Open MPI") else {PRTE!r}
provider.connect(provider.launched(theirs))
"""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    last = ran.stderr.splitlines()[-1]
    assert "ranks, and is that of " in last
    assert last.endswith("keep one MPI in an environment, and call its own mpirun")
