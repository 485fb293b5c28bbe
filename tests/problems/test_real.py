"""Real problems: where they come from, and what is left of them when they are scaled."""

from collections import Counter
from math import prod

import pytest

from d5test.backends.numpy import Numpy
from d5test.case import Case, Operator, Tensor
from d5test.checks import forward
from d5test.problems.networks import networks
from d5test.problems.real import real_problems, small_problems
from d5test.problems.scaling import ELEMENTS, LADDER, RULES, WORK, narrowed, scaled
from d5test.reference.operators.attention import Attention
from d5test.reference.operators.elementwise import Relu
from d5test.reference.operators.linear import Gemm
from d5test.reference.operators.recurrent import LSTM
from d5test.reference.operators.windows import Conv, MaxPool
from tests.faults.score import Local

OPERATORS = tuple(RULES)


def test_problems_of_networks_are_there() -> None:
    counts = Counter(p.case.op.name for p in networks())
    assert counts["Conv"] == 1104
    assert counts["Attention"] == 17
    assert set(counts) == {operator.__name__ for operator in OPERATORS}
    assert all("benchdnn" in p.source and "3f27bec21f" in p.source for p in networks())


def test_an_operator_that_no_network_is_known_for_has_none() -> None:
    assert not real_problems(Relu)
    assert not small_problems(Relu)


def test_what_both_collections_have_is_there_once() -> None:
    (resnet,) = (
        p for p in real_problems(Conv) if p.case.shapes[:2] == ((16, 64, 56, 56), (64, 64, 3, 3))
    )
    assert "benchdnn" in resnet.source


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_scaled_problems_are_small_and_keep_what_chooses_a_kernel(
    operator: type[Operator],
) -> None:
    for problem in real_problems(operator):
        case, small = problem.case, scaled(problem.case)
        assert small is not None
        assert (small.op.multiplications(*small.shapes) or 0) <= WORK
        assert max(prod(shape or ()) for shape in small.shapes) <= ELEMENTS
        for name in ("kernel_shape", "strides", "dilations", "pads", "transA", "transB"):
            assert getattr(small.op, name, None) == getattr(case.op, name, None)
        for before, after in zip(case.shapes, small.shapes, strict=True):
            assert before is not None
            assert after is not None
            assert len(before) == len(after)
            assert all(0 < b <= a for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_every_scaled_problem_is_a_valid_case(operator: type[Operator]) -> None:
    client = Local("numpy", Numpy())
    every = small_problems(operator)
    for case in every[:: 1 + len(every) // 12]:
        assert forward(client, case).ratio <= 1


def test_sides_keep_their_remainder() -> None:
    assert [narrowed(side, 96) for side in (40, 96, 1000, 1024, 1001)] == [40, 96, 88, 96, 89]
    assert narrowed(40, 8) == 8


def test_depthwise_stays_depthwise_and_heads_share_keys() -> None:
    mobilenet = Case(
        Conv(group=512, kernel_shape=(3, 3), strides=(1, 1), pads=(1,) * 4),
        (Tensor((96, 512, 14, 14)), Tensor((512, 1, 3, 3))),
    )
    small = scaled(mobilenet)
    assert small is not None
    assert small.shapes[1] == (small.op.group, 1, 3, 3)  # type: ignore[attr-defined]
    llama = Case(
        Attention(),
        (Tensor((1, 28, 384, 128)), Tensor((1, 4, 384, 128)), Tensor((1, 4, 384, 128))),
    )
    small = scaled(llama)
    assert small is not None
    q, k, _ = small.shapes
    assert q is not None
    assert k is not None
    assert (q[1] / k[1], q[-1]) == (7, 128)


def test_space_goes_before_channels() -> None:
    assert [limits.space for limits in LADDER] == sorted(
        (limits.space for limits in LADDER), reverse=True
    )
    vgg = Case(
        Conv(kernel_shape=(3, 3), strides=(1, 1), pads=(1,) * 4),
        (Tensor((64, 64, 224, 224)), Tensor((64, 64, 3, 3)), Tensor((64,))),
    )
    small = scaled(vgg)
    assert small is not None
    assert small.shapes == ((2, 64, 4, 4), (64, 64, 3, 3), (64,))


def test_an_operator_with_attributes_has_problems_of_its_own_alone() -> None:
    plain = small_problems(Conv(kernel_shape=(3, 3), pads=(1, 1, 1, 1)))
    assert plain
    assert {case.shapes[1][2:] for case in plain if case.shapes[1]} == {(3, 3)}
    assert {case.op.strides for case in plain} == {(1, 1)}  # type: ignore[attr-defined]
    assert not small_problems(Conv(kernel_shape=(3, 3), auto_pad="SAME_UPPER"))
    kernels = {case.shapes[1][2:] for case in small_problems(Conv()) if case.shapes[1]}
    assert len(kernels) > 1  # a kernel that is left out is any
    assert {case.op.hidden_size for case in small_problems(LSTM(hidden_size=64))} == {64}  # type: ignore[attr-defined]
    assert not small_problems(MaxPool(kernel_shape=(3, 3), ceil_mode=1))


def test_a_form_has_problems_of_its_values_alone() -> None:
    kept = small_problems(Gemm, {"transA": (0,), "transB": (1,), "alpha": (1.0,)})
    assert kept
    assert {(c.op.transA, c.op.transB) for c in kept} == {(0, 1)}  # type: ignore[attr-defined]
