"""A rank that ends without a word, in the way that the variable DEATH names."""

import os
import signal
import time
from typing import Any

import numpy as np
import pytest

DEATHS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "left": lambda: os._exit(0),
    "asleep": lambda: time.sleep(600),
}


def test_before(communicator: Any) -> None:
    communicator.Barrier()


@pytest.mark.deadline(3)
def test_death(communicator: Any) -> None:
    communicator.Barrier()
    if communicator.rank == 1:
        time.sleep(1)  # the others reach the Allreduce
        DEATHS[os.environ["DEATH"]]()
    communicator.raw.Allreduce(np.ones(3), np.zeros(3))


def test_after(communicator: Any) -> None:
    communicator.Barrier()
