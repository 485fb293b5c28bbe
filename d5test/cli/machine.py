"""The machine: processor, memory, threads, BLAS, MPI, compilers; how to get what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from d5test import __version__
from d5test.native.compiler import NVCC, nvcc

PACKAGES = ("numpy", "scipy", "onnx", "ml_dtypes", "hypothesis", "pytest", "pytest-benchmark")
LIMIT = 20
"""Seconds for a program to say who it is."""
ADVICE = {
    "g++": "apt-get install g++",
    "nvcc": f"needed for CUDA only: pip install {' '.join(NVCC)}",
    "mpirun": "pip install mpi4py mpich",
}


def facts() -> Iterator[tuple[str, str]]:
    """Each fact with its name, as soon as it is known: what takes seconds comes last."""
    import psutil

    memory, cores = psutil.virtual_memory(), psutil.cpu_count(logical=False)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "d5test", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "platform", platform.platform()
    yield "processor", f"{processor()}, {cores} cores, {os.cpu_count()} threads"
    yield "usable", f"{usable} threads"
    free = f"{memory.available / 2**30:.1f} GiB available"
    yield "memory", f"{memory.total / 2**30:.1f} GiB, {free}"
    yield "OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "not set")
    yield "packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    yield "BLAS", blas()
    yield "g++", program("g++")
    yield "nvcc", program("nvcc", nvcc())
    yield "MPI", mpi()


def processor() -> str:
    """Its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def blas() -> str:
    """The libraries of NumPy and SciPy that have threads of their own."""
    import numpy.linalg
    import threadpoolctl

    numpy.linalg.norm([1.0])
    pools = threadpoolctl.threadpool_info()
    told = [f"{p['internal_api']} {p['version']}, {p['num_threads']} threads" for p in pools]
    return "; ".join(dict.fromkeys(told)) or "none that threadpoolctl knows"


def mpi() -> str:
    """What two ranks say that mpirun starts: the library, or why they do not come together."""
    # not before: what pytest loads as a plugin has not been imported, so that it can rewrite it
    from d5test.plugin.ranks.mpirun import ALLOWED, found

    path = found()
    if path is None:
        return f"missing: {ADVICE['mpirun']}"
    command = [path, "-n", "2", sys.executable, "-m", "d5test.distributed.provider"]
    try:
        ran = subprocess.run(
            command, env={**ALLOWED, **os.environ}, capture_output=True, text=True,
            timeout=LIMIT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    return f"{said[0] if said else f'exit status {ran.returncode}'} ({path})"


def program(name: str, path: str | None = None) -> str:
    """The first line of what a program says of its version, and where it is, if not at `path`."""
    path = path or shutil.which(name)
    if path is None:
        return f"missing: {ADVICE[name]}"
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=LIMIT, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    lines = [line for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "release" in line.lower() or "Version" in line]
    return f"{(telling or lines or ['?'])[0].strip()} ({path})"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
