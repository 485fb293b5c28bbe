"""Backends of strangers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from d5test.client.client import WorkerClient
from tests.reproducer.strangers import BACKEND
from tests.reproducer.toy import Toy


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Any]:
    """Makes the client of a backend whose Add ends in the given statement."""
    clients: list[WorkerClient] = []

    def make(
        wrong: str,
        slopes: str = "",
        row: str = 'gradient="none"',
        facts: str = "",
        name: str = "add",
    ) -> WorkerClient:
        path = tmp_path / "stranger.py"
        text = BACKEND.format(wrong=wrong, slopes=slopes, row=row, facts=facts)
        path.write_text(text.replace("def add(", f"def {name}("))
        clients.append(WorkerClient(f"{path}:Mine", timeout=20))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)
