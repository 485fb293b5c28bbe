"""At kinks and ties a bar holds every subgradient between the one-sided ones, and no other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from d5test.case import Case, Operator, Tensor
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import gradient_bounds
from d5test.numerics.judgement import judge
from d5test.reference.operators import OPERATORS

DY = 3.0
"""The upstream gradient of every element."""


def literal(*values: float) -> Tensor:
    return Tensor((len(values),), "float32", data=values)


def right(op: Operator, inputs: tuple[Tensor, ...], *gradients: Any) -> bool:
    """Whether these gradients of all elements are accepted under an upstream gradient of DY."""
    case = Case(op, inputs, 0)
    arrays = case.arrays()
    shape = np.shape(op(*(a.astype(float) for a in arrays))[0])
    bounds = gradient_bounds(op, arrays, [np.full(shape, DY, "float32")], classes("float32")[0])
    results = [
        np.asarray(g, "float32").reshape(np.shape(a))
        for g, a in zip(gradients, arrays, strict=True)
    ]
    return judge(bounds, results).right


AT_KINKS = {
    "Relu": (OPERATORS["Relu"](), 0.0, (0.0, DY)),
    "Abs": (OPERATORS["Abs"](), 0.0, (-DY, DY)),
    "LeakyRelu": (OPERATORS["LeakyRelu"](alpha=0.25), 0.0, (0.25 * DY, DY)),
    "Elu": (OPERATORS["Elu"](alpha=2.0), 0.0, (DY, 2 * DY)),
    "ThresholdedRelu": (OPERATORS["ThresholdedRelu"](alpha=1.0), 1.0, (0.0, DY)),
    "HardSigmoid": (OPERATORS["HardSigmoid"](alpha=0.25, beta=0.5), 2.0, (0.0, 0.25 * DY)),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(AT_KINKS))
def test_a_kink_accepts_what_lies_between_both_sides(name: str) -> None:
    op, kink, (least, most) = AT_KINKS[name]
    x = (literal(kink),)
    for share in (0.0, 0.25, 0.5, 1.0):
        assert right(op, x, least + share * (most - least))
    for outside in (least - 0.01, most + 0.01):
        assert not right(op, x, outside)


def test_no_gradient_of_equal_inputs_is_negative_or_more_than_flows_in() -> None:
    op, x = OPERATORS["Max"](), literal(1.0)
    for shares in ((1.0, 0.0, 0.0), (0.5, 0.25, 0.25), (0.0, 0.0, 1.0), (1 / 3, 1 / 3, 1 / 3)):
        assert right(op, (x, x, x), *(DY * share for share in shares))
    for shares in ((-0.01, 0.5, 0.5), (1.01, 0.0, 0.0), (0.0, 1.01, 0.0), (0.0, 0.0, -0.01)):
        assert not right(op, (x, x, x), *(DY * share for share in shares))


def test_a_power_of_zero_has_no_slope_and_others_have_theirs() -> None:
    op, slope = OPERATORS["Pow"](), DY * np.log(2.0)
    assert right(op, (literal(0.0), literal(2.0)), 0.0, 0.0)
    for wrong in (np.nan, 0.01):
        assert not right(op, (literal(0.0), literal(2.0)), 0.0, wrong)
    assert right(op, (literal(2.0), literal(0.0)), 0.0, slope)
    assert not right(op, (literal(2.0), literal(0.0)), 0.0, 0.0), "only a power of 0 may be a jump"


@pytest.mark.parametrize("name", ["ReduceMax", "MaxPool", "ReduceMin", "GlobalMaxPool"])
def test_rivals_of_a_largest_element_share_what_flows_in(name: str) -> None:
    image = Tensor((1, 1, 3), "float32", data=(1.0, 1.0, 0.0))
    attributes = {"MaxPool": {"kernel_shape": (3,)}, "GlobalMaxPool": {}}.get(
        name, {"keepdims": 0}
    )
    if name == "ReduceMin":
        image = replace(image, data=(1.0, 1.0, 2.0))
    op = OPERATORS[name](**attributes)
    for shares in ((1, 0, 0), (0, 1, 0), (0.5, 0.5, 0)):
        assert right(op, (image,), [DY * share for share in shares])
    for shares in ((-0.01, 1, 0), (1.01, 0, 0), (0.5, 0.5, 0.01)):
        assert not right(op, (image,), [DY * share for share in shares])
