"""A function is accused of accepting shapes only if its row passes on what shows the misfit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.client.client import WorkerClient
from d5test.outcome.tally import Inapplicable
from d5test.reference.operators import OPERATORS

BACKEND = """
from torch.nn import functional as F

from d5test.backends.base import Table, planned
from d5test.backends.torch import Torch

rows = Table()


@rows.native("AffineGrid", values=(1,))
@planned
def grid(op, theta, size):
    n, *sides = (int(n) for n in size)
    return lambda theta, size: F.affine_grid({argument}, [{batch}, *sides])


class Mine(Torch):
    rows, forms = rows, {{}}
"""
SIZE = Tensor((4,), "int64", data=(2, 1, 3, 4))
CASE = Case(OPERATORS["AffineGrid"](), (Tensor((2, 2, 3)), SIZE), seed=5)


@pytest.fixture
def backend(tmp_path: Path) -> Callable[[str, str], str]:
    def write(argument: str, batch: str) -> str:
        (tmp_path / "mine.py").write_text(BACKEND.format(argument=argument, batch=batch))
        return f"{tmp_path / 'mine.py'}:Mine"

    return write


def test_a_part_of_an_input(backend: Callable[[str, str], str]) -> None:
    with (
        WorkerClient(backend("theta", "len(theta)")) as client,
        pytest.raises(Inapplicable, match="the row does not pass on what shows"),
    ):
        CHECKS["invalid_arguments"].run(client, CASE)


AS_A_TENSOR = """
import torch

from d5test.backends.base import Table
from d5test.backends.torch import Torch

rows = Table()


@rows.native("Reshape")
def reshaped(op, x, shape):
    return torch.take(x, shape)


class Mine(Torch):
    rows, forms = rows, {}
"""


def test_a_function_that_takes_the_input_as_a_tensor_is_accused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AS_A_TENSOR)
    shape = Tensor((2,), "int64", data=(3, 2))
    case = Case(OPERATORS["Reshape"](), (Tensor((3, 2)), shape), seed=5)
    with WorkerClient(f"{tmp_path / 'mine.py'}:Mine") as client, pytest.raises(Fault) as caught:
        CHECKS["invalid_arguments"].run(client, case)
    assert caught.value.kind == "accepted"


def test_a_function_that_is_asked_is_accused(backend: Callable[[str, str], str]) -> None:
    with WorkerClient(backend("theta[:n]", "n")) as client, pytest.raises(Fault) as caught:
        CHECKS["invalid_arguments"].run(client, CASE)
    assert caught.value.kind == "accepted"
