"""TF32 is allowed where the user allows it, and nowhere else."""

from pathlib import Path
from typing import Any

from d5test.client.client import WorkerClient
from d5test.worker.service import TF32
from tests.backends.tiny import Tiny


class Coarse(Tiny):
    """Its version says what it was allowed."""

    allowed = "float32"

    def allow_tf32(self) -> None:
        self.allowed = "tf32"

    @property
    def version(self) -> str:
        return self.allowed


def test_a_worker_allows_tf32_only_when_told(ops: Any) -> None:
    for environment, expected in (({}, "float32"), ({TF32: "1"}, "tf32")):
        with WorkerClient(f"{Path(__file__)}:Coarse", environment=environment) as client:
            assert client.about.version == expected


def test_each_framework_has_a_switch_for_it() -> None:
    torch = __import__("torch")
    from d5test.backends.torch import Torch

    backend = Torch()
    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    assert [flag.allow_tf32 for flag in flags] == [False, False]
    backend.allow_tf32()
    assert [flag.allow_tf32 for flag in flags] == [True, True]
    Torch()
    assert [flag.allow_tf32 for flag in flags] == [False, False]
