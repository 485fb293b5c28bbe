"""The ensemble holds honest float32 over many steps, and not a wrong epsilon or a lost gate."""

from __future__ import annotations

import numpy as np

from d5test.case import Case, Tensor
from d5test.numerics.arithmetic import classes
from d5test.numerics.ensemble import ensemble_bounds, norm_ratio
from d5test.numerics.judgement import judge
from d5test.reference.operators import OPERATORS

(SINGLE,) = classes("float32")
SMALL = ("uniform", -0.4, 0.4)


def layer() -> Case:
    lstm = OPERATORS["LSTM"](hidden_size=6)
    shapes = ((1, 24, 5), (1, 24, 6), (1, 48))
    weights = (Tensor(shape, values=SMALL) for shape in shapes)
    return Case(lstm, (Tensor((40, 3, 5)), *weights), seed=3)


def test_honest_float32_is_far_inside() -> None:
    case = layer()
    outputs = case.op(*case.arrays())
    bounds = ensemble_bounds(case.op, case.arrays(), None, SINGLE)
    assert 0 < judge(bounds, outputs).ratio < 0.5
    assert 0 < norm_ratio(bounds, outputs) < 0.5


def test_a_weight_that_is_slightly_off_is_outside() -> None:
    case = layer()
    arrays = list(case.arrays())
    assert arrays[1] is not None
    arrays[1] = arrays[1].copy()
    arrays[1].flat[7] *= np.float32(1.001)
    wrong = case.op(*arrays)
    bounds = ensemble_bounds(case.op, case.arrays(), None, SINGLE)
    assert judge(bounds, wrong).ratio > 2
    assert norm_ratio(bounds, wrong) > 2


def test_gradients_are_judged_too() -> None:
    case = layer()
    outputs = case.op(*case.arrays())
    grads = case.upstream(outputs)
    gradients = case.op.vjp(grads, case.arrays(), outputs)
    bounds = ensemble_bounds(case.op, case.arrays(), grads, SINGLE)
    assert 0 < judge(bounds, gradients).ratio < 0.5
