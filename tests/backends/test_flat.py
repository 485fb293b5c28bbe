"""A framework that differentiates what is flat: its zeros are right, and nothing is red."""

import numpy as np
import pytest
import torch

from d5test.backends.base import Table
from d5test.backends.torch import Torch
from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.client.client import InProcessClient
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable
from d5test.reference.operators.elementwise import Ceil, Sign


class StraightThrough(torch.autograd.Function):
    """Ceil, whose gradient is that of the identity."""

    @staticmethod
    def forward(_, x):
        return torch.ceil(x)

    @staticmethod
    def backward(_, dy):
        return dy


rows = Table()
rows.elementwise({"Ceil": torch.ceil, "Sign": torch.sign})
others = Table()
others.elementwise({"Ceil": StraightThrough.apply})


class Flat(Torch):
    rows = {**Torch.rows, **rows}  # noqa: RUF012 (as one writes it)


class NotFlat(Torch):
    rows = {**Torch.rows, **others}  # noqa: RUF012


@pytest.mark.parametrize("case", [
    Case(Ceil(), (Tensor((3, 4), "float64"),)),
    Case(Sign(), (Tensor((3, 4), "float64", ("ties",)),)),
    Case(Ceil(), (Tensor((2000,), "float64", ("normal",)),), seed=3),
])  # fmt: skip
def test_a_gradient_of_zeros_is_no_case_that_tells_nothing(case: Case) -> None:
    with pytest.raises(Inapplicable, match="and its gradient is zero"):
        CHECKS["numerical_gradient"].run(InProcessClient(f"{__name__}:Flat"), case)


def test_another_gradient_is_a_fault() -> None:
    case = Case(Ceil(), (Tensor((3, 4), "float64", ("constant", 0.5)),))
    assert np.all(case.inputs[0].array(0, 0) == 0.5)
    with pytest.raises(Fault, match="gradient"):
        CHECKS["numerical_gradient"].run(InProcessClient(f"{__name__}:NotFlat"), case)
