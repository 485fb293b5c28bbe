"""The worker in which candidates are made and called."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Self

import torch

from d5test.client.client import WorkerClient
from d5test.client.messages import (
    FAILURES,
    Advice,
    BackendFailed,
    Raised,
)
from d5test.client.registry import Spec
from d5test.modules.candidate import JOB
from d5test.modules.setting import Setting

TIMEOUT = 300.0
"""Seconds for one request: kernels are compiled in the first."""
FAILED = (Raised, BackendFailed, *FAILURES)
"""What is raised where a module cannot be made or called."""
WORKER = "d5test.modules.candidate"
TARGET = f"{WORKER}:Candidate"
ADVICE = Advice(
    unreadable="what it returned cannot be read",
    refusing="",
    given="",
    stopped="",
    flushes="",
    rounded="",
    looser="",
    fewer="",
)


class Bench:
    """A worker in which one module after the other is made, each in a process that is fresh."""

    def __init__(self, device: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._job = Path(self._folder.name) / "job.pt"
        environment = {JOB: str(self._job)}
        self._client = WorkerClient(
            Spec("a candidate", TARGET), device, timeout=TIMEOUT, environment=environment
        )
        self._client.advice = ADVICE

    def client(
        self, setting: Setting, path: Path, name: str, *, compiled: bool = False
    ) -> WorkerClient:
        """The module of a file, made. Raises what making it raises."""
        torch.save(setting.job(path, name, compiled=compiled), self._job)
        self._client.renew()
        self._client.named(f"{path.name}:{name} with torch")
        self._client.ask("describe")
        return self._client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()
        self._folder.cleanup()
