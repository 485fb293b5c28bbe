"""What a worker is started as: the interpreter, the backend, and the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NPROC",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
"""Variables that frameworks read a number of threads from; NPROC is XLA's."""


@dataclass(frozen=True)
class Launch:
    """What to start. `environment` adds variables, or removes those that are `None`."""

    name: str
    target: str
    python: str
    device: str = "cpu"
    threads: int | None = None
    fork: bool = True
    environment: Mapping[str, str | None] | None = None

    def variables(self) -> dict[str, str]:
        """The worker's environment. Another interpreter is given none of our search paths."""
        variables = dict(os.environ)
        if self.python != sys.executable:
            for name in ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__"):
                variables.pop(name, None)
        if self.threads is not None:
            variables.update(dict.fromkeys(THREADS, str(self.threads)))
            if self.threads == 1:
                flags = variables.get("XLA_FLAGS", ""), "--xla_cpu_multi_thread_eigen=false"
                variables["XLA_FLAGS"] = " ".join(flags).strip()
        for name, value in (self.environment or {}).items():
            variables.pop(name, None)
            if value is not None:
                variables[name] = value
        return variables
