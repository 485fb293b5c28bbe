"""The ensemble holds honest float32 over many steps, and not a wrong epsilon or a lost gate."""

import numpy as np
import pytest

from d5test.case import Case, Tensor
from d5test.numerics.arithmetic import classes
from d5test.numerics.ensemble import ensemble_bounds, norm_ratio
from d5test.numerics.judgement import judge
from d5test.numerics.perturbed import deviates, walk
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


def test_equal_results_have_equal_errors_and_others_look_independent() -> None:
    x = np.random.default_rng(5).standard_normal((200, 300))
    first, second = (deviates(x, np.abs(x), member) for member in (0, 1))
    assert (deviates(x[::-1], np.abs(x[::-1]), 0)[::-1] == first).all()
    assert (deviates(x * (1 + 2.0**-51), np.abs(x), 0) == first).mean() > 0.99
    assert first.min() > -1
    assert first.max() < 1
    several = 5 / np.sqrt(x.size)  # deviations of a mean
    assert abs(first.mean()) < several
    assert abs((first * first).mean() - 1 / 3) < several
    assert abs((first * second).mean()) < several
    assert abs((first[1:] * first[:-1]).mean()) < several
    zeros = deviates(np.array([0.0, -0.0]), np.ones(2), 0)
    assert zeros[0] == zeros[1]


def test_equal_channels_may_be_summed_by_two_kernels() -> None:
    """Softmax of 1000 equal logits of 1.6e10: one ULP, and half of the classes have it all."""

    class Logits(OPERATORS["Softmax"]):
        def forward(self, x):
            return super().forward(x * np.float64(0.02))

    case = Case(Logits(axis=1), (Tensor((1, 1000), values=("constant", 8e11)),))
    (bound,) = ensemble_bounds(case.op, case.arrays(), None, SINGLE)
    got = np.where(np.arange(1000) % 2, 0.002, 0.0)[None]
    assert judge((bound,), (got.astype(np.float32),)).right


@pytest.mark.parametrize("n", [64, 1024, 4608])
@pytest.mark.parametrize("signs", ["random", "one"])
def test_the_size_of_a_sum_is_that_of_its_partial_sums(n: int, signs: str) -> None:
    terms = np.random.default_rng(n).standard_normal((200, n)).astype(np.float32)
    terms = np.abs(terms) if signs == "one" else terms
    wide = terms.astype(np.float64)
    error = np.cumsum(terms, axis=1, dtype=np.float32)[:, -1] - wide.sum(1)
    size = walk(wide.sum(1), (wide * wide).sum(1), n)
    uniform = 2.0**-24 * size / np.sqrt(3)
    assert 0.4 < np.sqrt(np.mean((error / uniform) ** 2)) < 1


def test_an_infinity_is_demanded_and_hides_no_number_beside_it() -> None:
    x = np.array([[1.5, -np.inf, 0.25], [np.inf, 3.0, -7.0]])
    w = np.full(3, 1.7)
    mul = OPERATORS["Mul"]()
    (bound,) = bounds = ensemble_bounds(mul, (x, w), None, SINGLE)
    assert np.isfinite(bound.bar).all()
    right = x.astype(np.float32) * np.float32(1.7)
    assert judge(bounds, [right]).ratio < 1
    assert norm_ratio(bounds, [right]) < 1
    for at, value in (((0, 1), -np.finfo(np.float32).max), ((1, 0), -np.inf), ((0, 2), 0.4251)):
        wrong = right.copy()
        wrong[at] = value
        assert judge(bounds, [wrong]).ratio > 1
