"""Engines of parallel training arrive where one process does, on every rank, by their plan.

mpirun -n 4 pytest suites/distributed/test_engines.py --engine=torch-ddp,torch-fsdp2
mpirun -n 4 pytest suites/distributed/test_engines.py --engine=./mine.py:Mine
"""

from collections.abc import Callable


def test_training(judge_engine: Callable[[], None]) -> None:
    judge_engine()


def test_drawn_training(judge_drawn_training: Callable[[], None]) -> None:
    judge_drawn_training()
