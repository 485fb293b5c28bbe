"""How bad a wrong result is, and what it is."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis.vendor.pretty import pretty

from d5test.case import Case, Tensor
from d5test.numerics.arithmetic import Arithmetic, classes, format_of
from d5test.numerics.bounds import Bound, Bounds, forward_bounds, gradient_bounds
from d5test.numerics.judgement import (
    COARSEST,
    Judgement,
    bits_right,
    explaining_precision,
    is_usual,
    no_chance,
    share_of,
)
from d5test.numerics.perturbed import rounded
from d5test.outcome.fault import EXPLANATIONS, _character, judgement_in_words
from d5test.reference.operators import OPERATORS


@pytest.mark.parametrize(
    ("got", "want", "bits"),
    [
        (1.0, 1.0, 24),
        (1 + 2.0**-10, 1.0, 10),
        (1 - 2.0**-10, 1.0, 10),
        (-3 * (1 + 2.0**-5), -3.0, 5),
        (1 + 2.0**-40, 1.0, 24),
        (1.4, 1.0, 1),
        (-1.0, 1.0, 0),
        (0.0, 1.0, 0),
        (5.0, 1.0, 0),
        (1e-45, 0.0, 0),
        (nan, 1.0, 0),
        (1.0, nan, 0),
        (inf, 1.0, 0),
        (1.0, inf, 0),
        (inf, inf, 24),
        (1e308, -1e308, 0),
    ],
)
def test_bits(got: float, want: float, bits: int) -> None:
    assert bits_right(got, want, 24) == bits


def explained(case: Case, results: Any, grads: Any = None) -> int | None:
    def bounds(arithmetic: Arithmetic) -> Bounds:
        if grads is None:
            return forward_bounds(case.op, case.arrays(), arithmetic)
        return gradient_bounds(case.op, case.arrays(), grads, arithmetic)

    return explaining_precision(bounds, classes(case.dtype)[-1], results, case.arrays())


def in_bits(case: Case, bits: int) -> tuple[Any, ...]:
    """The outputs as computed with significands of so many bits."""
    wide = (x.astype(np.float64) for x in case.arrays() if x is not None)
    return tuple(y.value for y in case.op(*(rounded(x, bits) for x in wide)))


SOFTMAX = OPERATORS["Softmax"](axis=-1)
MATMUL = OPERATORS["MatMul"]()


@pytest.mark.parametrize("bits", [9, 11, 16, 20])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "case",
    [Case(SOFTMAX, (Tensor((3, 7)),)), Case(MATMUL, (Tensor((3, 5)), Tensor((5, 2))))],
    ids=str,
)
def test_coarser_arithmetic_is_an_inaccuracy_of_its_bits(case: Case, bits: int, seed: int) -> None:
    case = Case(case.op, case.inputs, seed)
    found = explained(case, in_bits(case, bits))
    assert found is not None
    assert max(bits, COARSEST) <= found <= bits + 6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("op", "wrong"),
    [
        (SOFTMAX, lambda x: np.zeros_like(x)),
        (SOFTMAX, lambda x: np.full_like(x, 1 / 7)),
        (SOFTMAX, lambda x: x),
        (SOFTMAX, lambda x: SOFTMAX(x)[0] * 1.5),
        (SOFTMAX, lambda x: OPERATORS["Softmax"](axis=0)(x)[0]),
        (SOFTMAX, lambda x: np.full_like(x, np.nan)),
        (OPERATORS["Relu"](), lambda x: np.where(x < 0, 0.01 * x, x)),
        (OPERATORS["Tanh"](), lambda x: np.minimum(x, 1)),
    ],
)
def test_what_no_arithmetic_explains_is_another_function(op: Any, wrong: Any, seed: int) -> None:
    case = Case(op, (Tensor((3, 7)),), seed)
    (x,) = case.arrays()
    assert explained(case, (wrong(x),)) == 0


def test_of_gradients_too() -> None:
    case = Case(SOFTMAX, (Tensor((3, 7)),))
    (x,) = case.arrays()
    (dy,) = grads = case.upstream(case.op(x))
    (dx,) = case.op.vjp((dy.astype(float),), (x.astype(float),))
    assert explained(case, (dx * (1 + 1e-4),), grads) in range(13, 20)
    assert explained(case, (-dx,), grads) == 0


def test_where_bars_reject_nothing_it_is_not_known() -> None:
    case = Case(OPERATORS["Relu"](), (Tensor((0,)),))
    assert explained(case, (np.zeros(0),)) is None


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (1.0 + 2.0**-9, 1.0, "an inaccuracy, as computing in 9 bits may make"),
        (-10.3, 2.04, "a different function, or computing in 9 bits"),
        (1.0 + 2.0**-4, 1.0 + 2.0**-3, "a different function, or computing in 9 bits"),
        (2.0**-30, 0.0, "an inaccuracy, as computing in 9 bits may make"),
    ],
)
def test_a_result_without_a_right_bit_may_be_a_different_function(
    got: float, want: float, words: str
) -> None:
    judgement = Judgement(got=got, want=want, ratio=2.0, explained=9)
    assert EXPLANATIONS[_character(judgement, "float64")].format(judgement) == f": {words}"


@pytest.mark.parametrize(
    ("explained", "dtype", "words"),
    [
        (21, "float32", "a different constant, a missing term or an approximation: as computing"),
        (22, "float32", "an inaccuracy, as computing in 22 bits may make"),
        (30, "float64", "an inaccuracy, as computing in 30 bits may make"),
        (31, "float64", "a different constant, a missing term or an approximation: as computing"),
    ],
)
def test_an_error_that_no_dtype_makes_is_no_inaccuracy(
    explained: int, dtype: str, words: str
) -> None:
    judgement = Judgement(got=1.0 + 2.0**-explained, want=1.0, ratio=2.0**30, explained=explained)
    text = EXPLANATIONS[_character(judgement, dtype)].format(judgement)
    assert text.startswith(f": {words}")


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (-1.0, "18 of 24 bits: an approximation or a different function, which no rounding"),
        (-0.5, "1 of 24 bits: a different function, which no rounding explains"),
    ],
)
def test_a_result_whose_bits_are_mostly_right_may_be_an_approximation(
    got: float, words: str
) -> None:
    """A tanh that is -1 from about -7 on."""
    judgement = Judgement(got=got, want=-0.9999979995, bar=1e-7, ratio=20.0, explained=0)
    assert judgement_in_words(judgement, "float32")["right"].startswith(words)


def test_bars_that_hold_zeros_judge_nothing() -> None:
    """But where zeros are right up to what float64 errs, as of what no shift changes."""
    storage = format_of("float32")

    def share(value: Any, bar: Any) -> float:
        return share_of(Bound(np.array(value), np.array(bar), storage))

    assert share([1.0, 2.0, 3.0, 4.0], [0.1, 0.1, 0.1, np.inf]) == 0.75
    assert share([1.0, 2.0], [3.0, 3.0]) == 0
    assert share([1e-17, 0.0], [1e-6, 1e-6]) == 1
    assert share([1e-12, 0.0], [1e-6, 1e-6]) == 0


def test_hypothesis_prints_an_operator_and_its_class() -> None:
    assert pretty(MATMUL) == "MatMul()"
    assert "MatMul" in pretty(type(MATMUL))


def test_an_error_that_few_small_results_have_is_no_cancellation() -> None:
    """PaddlePaddle's exp in float16 gives 1.2e-4 below -53.3, and nothing else there is wrong."""
    x = np.linspace(-60, -20, 400).astype(np.float16)
    bounds = forward_bounds(OPERATORS["Exp"](), (x,), classes("float16")[0])
    judgement = Judgement(got=1.2e-4, want=0.0)
    few = np.where((x < -53) & (x > -54), np.float16(1.2e-4), np.float16(0))
    assert not is_usual(judgement, bounds, (few,))
    assert is_usual(judgement, bounds, (np.full_like(few, 1.2e-4),))
    assert is_usual(judgement, forward_bounds(OPERATORS["Exp"](), (x[:4],), classes("float16")[0]),
                    (few[:4],))  # fmt: skip


def test_one_truth_value_says_nothing_of_a_format() -> None:
    def truth(*values: bool) -> Bounds:
        value = np.array(values)
        return (Bound(value, np.zeros(len(values)), None),)

    right, rounded_first = truth(*[False] * 16), truth(*[True] * 16)
    assert not no_chance(right[:1], rounded_first, (np.array([True] + [False] * 15),))
    assert no_chance(right, rounded_first, (np.array([True] * 16),))
