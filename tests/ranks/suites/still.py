"""Ranks that do nothing, and ranks that only seem to. STILL names what ends the run."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

STILL = os.environ.get("STILL", "")
LONG = "import time\nend = time.time() + 5\nwhile time.time() < end: pass"
"""A program that computes for longer than a rank may do nothing."""

pytestmark = [pytest.mark.deadline(60), pytest.mark.idle(3)]


def test_one_computes(communicator: Any) -> None:
    if communicator.rank == 1:
        exec(LONG)
    communicator.Barrier()


def test_one_computes_and_others_wait_in_mpi(communicator: Any) -> None:
    if communicator.rank == 1:
        exec(LONG)
    communicator.raw.Barrier()


def test_one_waits_for_a_process(communicator: Any) -> None:
    if communicator.rank == 1:
        subprocess.run([sys.executable, "-S", "-c", LONG], check=True)
    communicator.Barrier()


def test_one_sleeps(communicator: Any) -> None:
    if communicator.rank == 1:
        while True:
            time.sleep(1)
    communicator.Barrier()


def test_one_sleeps_in_a_fixture(asleep: None) -> None:
    pass


@pytest.fixture
def asleep(communicator: Any) -> Iterator[None]:
    yield
    if communicator.rank == 2:
        time.sleep(600)


def test_after(communicator: Any) -> None:
    communicator.Barrier()


@pytest.mark.skipif(STILL != "raises", reason="ends the run")
def test_one_raises_and_others_wait_in_mpi(communicator: Any) -> None:
    if communicator.rank == 1:
        raise ValueError("planted")
    waiting(communicator)


def waiting(communicator: Any) -> None:
    communicator.raw.Allreduce(np.ones(3), np.zeros(3))


@pytest.fixture
def stopped(communicator: Any) -> Iterator[None]:
    """Rank 1 is stopped when it is through with the test, and waits for rank 0."""
    yield
    if communicator.rank == 1:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    if communicator.rank == 0:
        time.sleep(2)


@pytest.mark.skipif(STILL != "stopped", reason="ends the run")
def test_one_is_stopped_in_the_end(stopped: None) -> None:
    pass


@pytest.mark.skipif(STILL != "stopped", reason="ends the run")
def test_after_one_is_stopped(communicator: Any) -> None:
    communicator.Barrier()


def pytest_runtest_logstart(nodeid: str) -> None:
    """As a plugin: rank 1 is stopped where no test runs."""
    if STILL == "between" and os.environ.get("PMI_RANK") == "1" and "test_after" in nodeid:
        os.kill(os.getpid(), signal.SIGSTOP)
