"""A worker whose memory grows without end is renewed, between two cases."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from d5test.checks import CHECKS
from d5test.client.client import InProcessClient, WorkerClient
from d5test.client.process import resident
from d5test.exploration.explore import Exploration
from d5test.outcome.tally import Tally
from d5test.plugin.summary import lines
from d5test.reference.operators import OPERATORS
from d5test.strategies.sizes import Seed

LEAKING = """
import numpy as np

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy

KEPT = []


def relu(op, x):
    KEPT.append(np.ones({mib} * 2**17))
    return np.maximum(x, 0)


class Mine(Numpy):
    rows = {{"Relu": Row(relu, gradient="none")}}
"""
MIB = 2**20


@pytest.fixture(params=[4, 0], ids=["leaking", "honest"])
def leaking(request: Any, tmp_path: Path) -> Iterator[tuple[WorkerClient, int]]:
    """The client of a backend that keeps so many MiB of each call; 64 MiB are granted."""
    path = tmp_path / "leaking.py"
    path.write_text(LEAKING.format(mib=request.param))
    with WorkerClient(f"{path}:Mine", timeout=20) as client:
        client.most_memory = 64 * MIB
        yield client, request.param


def explored(client: Any, check: str) -> Tally:
    tally = Tally("leaking", check, "Relu", "float32")
    cell = Exploration(
        client, CHECKS[check], OPERATORS["Relu"], "float32", tally, 25, lambda case: False
    )
    assert not cell.faults(Seed(1))
    return tally


@pytest.mark.parametrize("check", ["forward", "determinism", "no_caching"])
def test_a_worker_that_leaks_is_renewed_and_nothing_is_lost(check: str, leaking: Any) -> None:
    client, leaked = leaking
    tally = explored(client, check)
    assert tally.right >= 25
    assert client._process.grown() < (64 + 16 * leaked + 16) * MIB
    said = [line for line in lines([tally]) if "renewed" in line]
    if leaked:
        assert tally.renewed >= 1
        assert f"was renewed, {tally.renewed} time" in said[0]
    else:
        assert (tally.renewed, said) == (0, [])


def test_what_is_resident() -> None:
    assert resident(2**30) == 0  # no such process


def test_what_has_no_worker_has_none_to_renew() -> None:
    client = InProcessClient("numpy")
    assert client.contain() is False
