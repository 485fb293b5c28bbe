"""How bad a wrong result is, and what it is."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis.vendor.pretty import pretty

from d5test.case import Case, Tensor
from d5test.numerics.arithmetic import Arithmetic, classes, format_of
from d5test.numerics.bounds import Bound, Bounds, forward_bounds, gradient_bounds
from d5test.numerics.explanation import (
    COARSEST,
    bits_right,
    explaining_precision,
    is_usual,
    may_cancel,
    no_chance,
    reordered,
    rounded_to,
)
from d5test.numerics.judgement import Judgement, share_of
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


def test_what_multiplies_a_difference_near_1_multiplies_its_error() -> None:
    """PaddlePaddle's derivative of x tanh(softplus(x)) at -36.8 is 0, where -3.7e-15 is due."""
    ulp = 2 * format_of("float64").u
    x = np.array([0.5, -36.8])
    lost = Judgement(got=0.0, want=-3.66e-15, position=(1,))
    assert may_cancel(lost, ulp, (x,))
    assert not may_cancel(Judgement(got=0.0, want=-3.66e-15, position=(0,)), ulp, (x,))
    assert not may_cancel(lost, ulp, (np.array([[0.5, -36.8]]),))
    assert not may_cancel(lost, ulp, (np.array([0.5, np.inf]),))


@pytest.mark.parametrize(
    ("want", "got", "is_so"),
    [
        ([1.25, 3.7, -0.1, 8.3], [3.7, 1.25, -0.1, 8.3], True),
        ([1.25, 3.7, -0.1, 8.3], [3.7, 3.7, -0.1, 8.3], False),
        ([1.25, 3.7, -0.1, 8.3], [3.7, 1.25, -0.1, 8.4], False),
        ([1.0, 2.0, 3.0], [2.0, 1.0, 3.0], False),
        ([True, False] * 20, [False, True] * 20, False),
        ([1001, 77, 70001], [70001, 1001, 77], True),
    ],
)
def test_numbers_in_another_order(want: Any, got: Any, is_so: bool) -> None:
    value = np.array(want)
    assert reordered(Bound(value, np.zeros(len(want)), None), np.array(got)) is is_so
    if value.dtype.kind == "f":
        near = Bound(value, np.abs(value) * 1e-7, format_of("float32"))
        assert reordered(near, np.array(got, np.float32)) is is_so


def test_integers_that_were_computed_in_floating_point() -> None:
    """As PaddlePaddle's product of matrices in int64."""
    x = np.array([16777217, 3 * 16777217, 2**40 + 1])

    def bounds(value: Any) -> Bounds:
        return (Bound(value, np.zeros(len(value)), None, exactly=True),)

    assert rounded_to(bounds(x), (x.astype(np.float32).astype(np.int64),)) == "float32"
    assert rounded_to(bounds(x), (x + 2,)) == ""
    assert rounded_to(bounds(x[:1]), (x[:1] + 1,)) == ""  # as any other fault may have it
    far = np.array([-3443009869511011978])  # whose last 32 bits are a number of float64, too
    assert rounded_to(bounds(far), (far.astype(np.int32).astype(np.int64),)) == ""
    cubes = np.array([1549779**3, 1549781**3])
    wrong = cubes.astype(np.float64).astype(np.int64)
    assert rounded_to(bounds(cubes), (wrong,)) == "float64"
    judgement = Judgement(
        got=int(wrong[0]), want=int(cubes[0]), ratio=np.inf, explained=0, rounded_to="float64"
    )
    words = judgement_in_words(judgement, "float32")
    assert words["right"] == "58 of 62 bits: every result is a number of float64"


def test_the_largest_number_of_bfloat16_is_no_fresh_memory_where_infinity_is_due() -> None:
    """With it a minimum begins in OpenVINO; its bytes are those of memory that nothing wrote."""
    largest = format_of("bfloat16").largest
    assert _character(Judgement(got=largest, want=np.inf, ratio=np.inf), "bfloat16") == "finite"
    assert _character(Judgement(got=largest, want=1.0, ratio=np.inf), "bfloat16") == "unwritten"


def test_where_nan_is_due_no_bits_are_counted() -> None:
    judgement = Judgement(got=inf, want=nan, ratio=inf, explained=0)
    assert _character(judgement, "float32") is None
    assert "right" not in judgement_in_words(judgement, "float32")
