"""How long an allreduce, and a step of an optimizer or an engine, take by the slowest rank."""

from collections.abc import Callable

import pytest

from d5test.distributed.communicator import LIBRARY
from d5test.reference.collectives import ALLREDUCE


@pytest.mark.parametrize("algorithm", [*ALLREDUCE, LIBRARY])
def test_allreduce(pace: Callable[[str, int], None], algorithm: str, nbytes: int) -> None:
    pace(algorithm, nbytes)


@pytest.mark.deadline(180)  # the first imports the framework
def test_scaling(scale: Callable[[str, int], None], mode: str, ranks: int) -> None:
    scale(mode, ranks)


def test_engine_scaling(scale_engine: Callable[[str, int], None], mode: str, ranks: int) -> None:
    scale_engine(mode, ranks)
