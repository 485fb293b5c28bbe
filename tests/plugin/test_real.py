"""--sizes=real: every real problem at its full size, and nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.backends.numpy import Numpy
from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.checks import real as full_size
from d5test.checks.real import bytes_needed, real_cases, require_memory
from d5test.exploration.cases import evenly
from d5test.outcome.fault import NO_CALLS
from d5test.reference.operators.attention import Attention
from d5test.reference.operators.linear import Gemm
from d5test.reference.operators.reductions import Softmax
from d5test.reference.operators.windows import Conv, GlobalAveragePool
from tests.faults.score import Local
from tests.faults.wrong import Arrays, Honest, Wrong
from tests.plugin.conftest import Suite

UNIFORM = ("uniform",)


class LastSample(Wrong):
    """Wrong in the first sample of many, or in its gradient."""

    def __init__(self, least: int, *, gradient: bool = False) -> None:
        super().__init__()
        self.least, self.gradient = least, gradient

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        y, *others = honest(*inputs)
        if len(inputs[0]) >= self.least and not self.gradient:
            y = y.copy()
            y[0] *= y.dtype.type(1.01)
        return (y, *others)

    def backward(self, gradients: Any, inputs: Arrays, grads: Arrays) -> Any:
        dx, *others = gradients
        if len(inputs[0]) >= self.least and self.gradient:
            dx = 1.01 * dx
        return (dx, *others)


def conv(n: int, dtype: str = "float32") -> Case:
    """A convolution of 25 million multiplications a sample."""
    op = Conv(kernel_shape=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(1, 1, 1, 1))
    shapes = (n, 32, 52, 52), (32, 32, 3, 3), (32,)
    return Case(op, tuple(Tensor(shape, dtype, UNIFORM) for shape in shapes))


@pytest.mark.parametrize("case", [conv(1), conv(12), conv(2, "bfloat16")], ids=repr)
def test_an_honest_backend_is_right_and_the_share_is_said(case: Case) -> None:
    judgement = full_size(Local("numpy", Numpy()), case)
    assert judgement.right
    assert 0 < judgement.ratio < 0.9
    assert (judgement.share == 1) == (case.shapes[0][0] < 3)  # type: ignore[index]


@pytest.mark.parametrize("gradient", [False, True])
def test_what_is_wrong_at_full_size_alone_is_found(gradient: bool) -> None:
    with pytest.raises(Fault, match="the smaller problem is right") as raised:
        full_size(Local("wrong", LastSample(5, gradient=gradient)), conv(6))
    assert raised.value.evidence is NO_CALLS
    assert full_size(Local("wrong", LastSample(5, gradient=gradient)), conv(4)).right


def test_what_is_wrong_when_scaled_down_too_is_reported_there() -> None:
    with pytest.raises(Fault) as raised:
        full_size(Local("wrong", LastSample(1)), conv(6))
    assert raised.value.case.shapes[0][0] == 2
    assert raised.value.evidence is not NO_CALLS


class Flattened(Wrong):
    """One row where there should be several."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        y, *others = honest(*inputs)
        return (y[:, :, :1], *others)


def test_a_wrong_shape_is_no_broadcast() -> None:
    with pytest.raises(Fault, match="wrong shape"):
        full_size(Local("wrong", Flattened()), conv(1))


def test_a_problem_that_does_not_fit_is_named_with_both_numbers() -> None:
    case = Case(Softmax(), (Tensor((2**20, 2**20)),))
    with pytest.raises(Unsupported, match=r"Softmax needs \d+\.\d GiB of memory, \d+\.\d GiB are"):
        require_memory(case)
    small = conv(1)
    inputs_and_output = 4 * (2 * 32 * 52 * 52 + 9 * 32 * 32)
    assert inputs_and_output < bytes_needed(small) < 60 * inputs_and_output


def test_cases_are_taken_from_all_over_the_list() -> None:
    cases = real_cases(Gemm, "bfloat16")
    assert {t.dtype for t in cases[0].inputs if t is not None} == {"bfloat16"}
    assert evenly(cases, None) == cases
    few = evenly(cases, 4)
    assert [cases.index(case) for case in few] == [i * len(cases) // 4 for i in range(4)]


def test_every_real_problem_of_an_operator_is_judged_once(suite: Suite) -> None:
    ran = suite(
        "",
        "--backend=numpy",
        "--sizes=real",
        "--operator=GlobalAveragePool,Relu",
        "--dtype=float32",
    )
    assert ran.rc == 0
    cell = ran.tallies["numpy", "real", "GlobalAveragePool", "float32"]
    assert cell.right + cell.unsupported == len(real_cases(GlobalAveragePool, "float32")) == 14
    assert "no real problem of this operator is known" in ran.text
    assert {check for _, check, *_ in ran.tallies} == {"real"}


def test_the_check_without_its_sizes_is_one_line(suite: Suite) -> None:
    ran = suite("", "--backend=numpy", "--check=real")
    assert ran.rc == 4
    assert "--check=real takes --sizes=real" in ran.text


def test_the_check_is_asked_of_nothing_else() -> None:
    assert CHECKS["real"].fixed
    assert [check.name for check in CHECKS.values() if check.sizes == "real"] == ["real"]
    unsized = replace(Attention(), is_causal=0)
    assert np.isfinite(bytes_needed(Case(unsized, tuple(Tensor((1, 2, 8, 4)) for _ in range(3)))))
