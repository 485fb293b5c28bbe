"""One mpirun: started, watched, stopped; no process of it outlives this object.

Requirements: the mpirun of this interpreter's environment, if it has one; as root and with more
ranks than cores as well, which Open MPI refuses unless it is told otherwise.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Self

ALLOWED: Mapping[str, str] = MappingProxyType(
    {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
)
EXIT_SECONDS = 5.0
"""Seconds for mpirun to end its ranks."""


def found() -> str | None:
    """The mpirun to call."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


class Mpirun:
    """A run of a command on some ranks. A context: what still runs at its end is stopped."""

    def __init__(
        self,
        size: int,
        command: Sequence[str],
        variables: Mapping[str, str],
        folder: Path,
        log: IO[bytes] | None,
    ) -> None:
        program = found()
        if program is None:
            raise FileNotFoundError("there is no mpirun: pip install mpi4py mpich")
        path = f"{Path(program).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self._process = subprocess.Popen(
            [program, "-n", str(size), *command],
            env={**ALLOWED, **os.environ, **variables, "PATH": path},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT if log is not None else None,
            start_new_session=True,
        )

    def status(self) -> int | None:
        """Its exit status, once it has ended."""
        return self._process.poll()

    def stop(self) -> None:
        """End it and its ranks."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            os.killpg(self._process.pid, number)
            try:
                self._process.wait(EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
