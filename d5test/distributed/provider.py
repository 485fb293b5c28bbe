"""Which MPI runs this process: as its launcher says, and as the library says once it is loaded.

Requirements: the environment is read without importing MPI, so that a run without it pays nothing;
settings are made before the library is loaded, and never replace the user's; a launcher of one MPI
with the library of another (N processes, each the only rank of its world, all of them green) is an
error in one line.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LAUNCHERS = (
    (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("Open MPI",),
    ),
    (
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
        ("MVAPICH",),
    ),
    (("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"), ("MPICH", "Intel MPI")),
)
"""Variables of mpirun: rank, size and ranks on this machine, and the libraries it belongs to."""
SCHEDULERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "srun": (
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
        ("PMIX_RANK", "SLURM_NTASKS"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ),
    "flux": (("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),),
    "jsrun": (("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),),
    "PALS": (("PALS_RANKID", ""),),
    "aprun": (("ALPS_APP_PE", ""),),
    "a launcher with PMIx": (("PMIX_RANK", ""),),
}
"""Variables of rank and size of what starts ranks of any library. A rank above 0, or a size above
1 beside the rank of a step, is a parallel run; the shell of an allocation has rank 0, and a size
of which it is the whole. Where a launcher states no size, it is that of MPI's world."""
SHELL = ("SLURM_PROCID", "SLURM_NTASKS")
"""What such a shell has, too: with rank 0 it says nothing."""
YIELDING: Mapping[str, Mapping[str, str]] = {
    "MPICH": {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "10"},
    "Open MPI": {
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_threads_pthreads_yield_strategy": "nanosleep",
    },
    "Intel MPI": {"I_MPI_THREAD_YIELD": "3"},
}
"""Settings, by library, for more ranks than cores: a rank that waits lets others run. They cost
0.1 ms of latency and save 10 ms (8 ranks on 2 cores)."""
ALONE = (
    "use mpirun, or srun --mpi=pmi2 or --mpi=pmix; to run each process alone, unset the "
    "variables of the launcher (SLURM_PROCID, PMIX_RANK, ...)"
)
INSTALLING = "pip install mpi4py mpich"


class Unusable(Exception):
    """There is no MPI, or not the one that the launcher belongs to. Its text is one line."""


@dataclass(frozen=True)
class Launch:
    """What a launcher says of one of its processes.

    local      ranks on this machine
    cores      that these may use
    libraries  that the launcher belongs to; empty: any
    launcher   what started them
    stated     whether it says the size, which is otherwise the least that there can be
    """

    rank: int
    size: int
    local: int
    cores: int
    libraries: tuple[str, ...]
    launcher: str = "mpirun"
    stated: bool = True

    @property
    def oversubscribed(self) -> bool:
        """Whether ranks share cores."""
        return self.local > self.cores


@dataclass(frozen=True)
class World:
    """All ranks, and what runs them.

    mpi       the module `mpi4py.MPI`
    library   name and version, `MPICH 5.0.2`
    settings  those of `YIELDING` for this library, as they stand, where ranks share cores
    """

    mpi: Any
    launch: Launch
    library: str
    settings: Mapping[str, str]

    def facts(self) -> dict[str, Any]:
        """For a record of times: plain values."""
        return {
            "library": self.library,
            "ranks": self.launch.size,
            "ranks_here": self.launch.local,
            "cores": self.launch.cores,
            "settings": dict(self.settings),
        }


def launched(environ: Mapping[str, str] = os.environ) -> Launch | None:
    """What the launcher of this process says; `None` if no launcher of MPI started it."""
    for (rank, size, local), libraries in LAUNCHERS:
        if rank in environ and size in environ:
            number, ranks = int(environ[rank]), int(environ[size])
            here = int(environ.get(local, ranks))
            any_library = "SLURM_PROCID" in environ  # srun has PMI's variables, too
            return Launch(number, ranks, here, _cores(), () if any_library else libraries)
    for launcher, claims in SCHEDULERS.items():
        for rank, size in claims:
            if rank not in environ or (size and size not in environ):
                continue
            number = int(environ[rank])
            ranks = int(environ[size]) if size else number + 1
            if number or (ranks > 1 and (rank, size) != SHELL):
                # 4(x2),1 is 4, 4 and 1 on a machine each
                first = re.match(r"\d+", environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
                here = int(first[0]) if first else ranks
                return Launch(number, ranks, here, _cores(), (), launcher, bool(size))
    return None


def connect(launch: Launch) -> World:
    """Load MPI. Raises `Unusable`."""
    if launch.oversubscribed:
        for settings in YIELDING.values():  # which library it will be is not known yet
            for name, value in settings.items():
                os.environ.setdefault(name, value)
    at_least = "" if launch.stated else "at least "
    started = f"{launch.launcher} started {at_least}{launch.size} ranks"
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except ModuleNotFoundError:
        raise Unusable(f"{started}, but mpi4py is not installed: {INSTALLING}") from None
    except (ImportError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise Unusable(f"{started}, but mpi4py finds no library: {first}: {INSTALLING}") from None
    library = library_of(MPI)
    name = library.rpartition(" ")[0]
    if name in YIELDING and launch.libraries and name not in launch.libraries:
        raise Unusable(_unpaired(started, launch, library))  # MPICH would abort in Init_thread
    if (
        name == "MPICH"
        and "PMIX_RANK" in os.environ
        and "pmix" not in MPI.Get_library_version().lower()
    ):
        raise Unusable(f"{started} with PMIx, and {library} is built without it: {ALONE}")  # too
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    ranks = MPI.COMM_WORLD.size
    if launch.rank >= ranks or (launch.stated and launch.size != ranks):
        raise Unusable(_unpaired(started, launch, library))
    launch = replace(launch, size=ranks)
    names = YIELDING.get(name, ()) if launch.oversubscribed else ()
    return World(MPI, launch, library, {name: os.environ[name] for name in names})


def library_of(mpi: Any) -> str:
    """Name and version of the library: `MPICH 5.0.2`."""
    text = mpi.Get_library_version()
    match = re.search(r"(MPICH|Open MPI|Intel\(R\) MPI)\D*([\d.]+\d)", text)
    return f"{match[1].replace('(R)', '')} {match[2]}" if match else text.splitlines()[0].strip()


def _unpaired(started: str, launch: Launch, library: str) -> str:
    if not launch.libraries:
        return f"{started}, but {library} sees another number of them: {ALONE}"
    return (
        f"{started}, and is that of {' or '.join(launch.libraries)}, but mpi4py loads {library}, "
        "to which each is alone: keep one MPI in an environment, and call its own mpirun"
    )


def _cores() -> int:
    """The cores that this job may use: those of the launcher, which may bind each rank to one."""
    try:
        return len(os.sched_getaffinity(os.getppid()))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def main() -> int:
    """What a rank sees: `mpirun -n 2 python -m d5test.distributed.provider`."""
    launch = launched()
    if launch is None:
        print("no launcher of MPI started this process")
        return 1
    try:
        world = connect(launch)
    except Unusable as error:
        if not launch.rank:
            print(error)
        return 1
    if not launch.rank:
        print(f"{world.library}, {launch.size} ranks on {launch.cores} cores")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
