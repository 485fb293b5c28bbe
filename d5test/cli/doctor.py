"""Say what is there: backends, devices, threads, libraries, compilers, and what is missing.

Requirements: each thing is a line, printed as soon as it is known, and never cut; each backend is
asked in a process of its own, several at a time, and one that fails, or that does not answer in
time, is one line with the reason; what is missing comes with the command that installs it.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from d5test import __version__, processor
from d5test.arguments import duration
from d5test.names import plural
from d5test.native.compiler import NVCC, nvcc

LIMIT = 60.0
"""Seconds for a framework to be imported, and to answer."""
PROGRAM_LIMIT = 20
"""For a program to say who it is."""
PACKAGES = ("numpy", "scipy", "onnx", "ml_dtypes", "hypothesis", "pytest", "pytest-benchmark")
ADVICE = {
    "g++": "apt-get install g++",
    "nvcc": f"needed for CUDA only: pip install {' '.join(NVCC)}",
    "mpirun": "pip install mpi4py mpich",
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--backend", metavar="NAME[,NAME]", help="only these backends")
    parser.add_argument(
        "--limit",
        type=duration,
        default=LIMIT,
        metavar="TIME",
        help="how long to wait for each backend (default: 60s)",
    )


def execute(options: argparse.Namespace) -> int:
    """Ask, and print."""
    from d5test.client import registry

    def tell(name: str, words: str) -> None:
        if not options.json:
            print(f"{name:{width}}  {words}", flush=True)

    names = options.backend.split(",") if options.backend else list(registry.installed())
    missing = {} if options.backend else registry.missing()
    width = max(map(len, [*names, *missing, "OMP_NUM_THREADS"]))
    machine, backends = {}, {}
    for name, value in facts():
        machine[name] = value
        tell(name, value)
    for name, answer in asked(names, options.limit):
        backends[name] = answer
        tell(name, in_words(answer))
    for name, command in missing.items():
        tell(name, f"is not installed: {command}")
    if options.json:
        ordered = {name: backends[name] for name in names}
        print(json.dumps({"machine": machine, "backends": ordered, "missing": missing}, indent=1))
    failed = any("fails" in answer for answer in backends.values())
    return int(bool(options.backend) and failed)


def asked(names: Iterable[str], limit: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each backend says of itself, whoever answers first first."""
    with ThreadPoolExecutor(max(2, (os.cpu_count() or 1) // 2)) as pool:
        begun = {pool.submit(backend, name, limit): name for name in names}
        for done in as_completed(begun):
            yield begun[done], done.result()


def backend(name: str, limit: float = LIMIT) -> dict[str, Any]:
    """What a backend says of itself, or why it cannot."""
    from d5test.client.client import WorkerClient
    from d5test.client.messages import Hung, UnknownBackend
    from d5test.timed import BROKEN

    try:
        with WorkerClient(name, timeout=limit, importing=limit) as client:
            about = client.about
            devices = client.invoke("d5test.worker.facts:devices")
    except Hung:
        return {"fails": f"no answer within {limit:g} s: is the machine busy? --limit=5m waits"}
    except (UnknownBackend, *BROKEN) as error:
        return {"fails": " ".join(str(error).split())}
    dtypes = dict.fromkeys(d for row in about.rows.values() for d in row.dtypes)
    return {
        "version": about.version,
        "mode": about.mode,
        "device": about.device_name,
        "devices": list(devices),
        "operators": len(about.rows),
        "dtypes": list(dtypes),
        "flushes": [dtype for dtype, flushes in about.flushes.items() if flushes],
        "threads": about.threads,
        "python": about.python,
        "packages": dict(about.packages),
    }


def in_words(answer: dict[str, Any]) -> str:
    """What a backend said, in a line."""
    if "fails" in answer:
        return f"cannot be used: {answer['fails']}"
    words = [
        f"{answer['version']} on {' '.join(answer['devices'])}",
        f"{answer['operators']} operators in {' '.join(answer['dtypes']) or 'no dtype'}",
        plural(answer["threads"], "thread"),
    ]
    if answer["flushes"]:
        words.append(f"flushes subnormal numbers of {' '.join(answer['flushes'])}")
    return ", ".join(words)


def facts() -> Iterator[tuple[str, str]]:
    """Each fact with its name, as soon as it is known: what takes seconds comes last."""
    import psutil

    memory, cores = psutil.virtual_memory(), psutil.cpu_count(logical=False)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "d5test", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "platform", platform.platform()
    yield (
        "processor",
        f"{processor.name()}, {cores} cores, {plural(os.cpu_count() or 1, 'thread')}",
    )
    yield "usable", plural(usable or 1, "thread")
    free = f"{memory.available / 2**30:.1f} GiB available"
    yield "memory", f"{memory.total / 2**30:.1f} GiB, {free}"
    yield "OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "not set")
    yield "packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    yield "BLAS", blas()
    yield "g++", program("g++")
    yield "nvcc", program("nvcc", nvcc())
    yield "MPI", mpi()


def blas() -> str:
    """The libraries of NumPy and SciPy that have threads of their own."""
    import numpy.linalg
    import threadpoolctl

    numpy.linalg.norm([1.0])
    pools = threadpoolctl.threadpool_info()
    libraries = [
        f"{p['internal_api']} {p['version']}, {plural(p['num_threads'], 'thread')}" for p in pools
    ]
    return "; ".join(dict.fromkeys(libraries)) or "none that threadpoolctl knows"


def mpi() -> str:
    """What two ranks say that mpirun starts: the library, or why they do not come together."""
    # not before: what pytest loads as a plugin has not been imported, so that it can rewrite it
    from d5test.plugin.ranks.supervisor import ALLOWED, mpirun

    path = mpirun()
    if path is None:
        return f"missing: {ADVICE['mpirun']}"
    command = [path, "-n", "2", sys.executable, "-m", "d5test.distributed.provider"]
    try:
        ran = subprocess.run(
            command, env={**ALLOWED, **os.environ}, capture_output=True, text=True,
            timeout=PROGRAM_LIMIT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    lines = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    return f"{lines[0] if lines else f'exit status {ran.returncode}'} ({path})"


def program(name: str, path: str | None = None) -> str:
    """The first line of what a program says of its version, and where it is, if not at `path`."""
    path = path or shutil.which(name)
    if path is None:
        return f"missing: {ADVICE[name]}"
    try:
        printed = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=PROGRAM_LIMIT, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    lines = [line for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if "release" in line.lower() or "Version" in line]
    return f"{(telling or lines or ['?'])[0].strip()} ({path})"


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
