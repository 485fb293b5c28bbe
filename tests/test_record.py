"""What a record says of where it was made."""

from pathlib import Path

import pytest

from d5test import record
from d5test.client.client import WorkerClient


def test_the_driver_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia, none = tmp_path / "version", tmp_path / "none"
    nvidia.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 2025\n"
        "GCC version:  gcc version 12.2.0\n"
    )
    monkeypatch.setattr(record, "DRIVERS", (str(none), str(nvidia)))
    told = "NVRM version: NVIDIA UNIX x86_64 Kernel Module 570.86.15 Thu Jan 23 2025"
    assert record.driver() == told
    assert record.environment()["driver"] == told
    nvidia.write_text("")
    assert record.driver() is None


def test_the_libraries_are_those_of_the_worker() -> None:
    with WorkerClient("numpy", threads=1) as client:
        told = record.describe_backend(client.about)
    assert any("openblas" in name and name.endswith(", 1 threads") for name in told["libraries"])
