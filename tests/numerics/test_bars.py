"""Bars hold honest arithmetic, reject lower precision, and say where they know nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from d5test import front_door
from d5test.case import Case, dtype_of
from d5test.numerics.arithmetic import classes
from d5test.numerics.bars import Bar
from d5test.numerics.bounds import (
    Bound,
    double,
    exact_bars,
    forward_bounds,
    gradient_bounds,
    lower_precision,
    reads_outputs,
)
from d5test.numerics.judgement import judge, telling
from d5test.numerics.perturbed import round_to
from d5test.reference.operators import OPERATORS
from d5test.reference.operators.elementwise import Pow, Sum
from d5test.reference.operators.reductions import CumSum
from d5test.strategies import cases
from d5test.values import octets, signalling

(SINGLE,) = classes("float32")
few = settings(
    max_examples=10,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("name", sorted(name for name, op in OPERATORS.items() if not op.random))
def test_numpys_own_float32_lies_within_the_bars(name: str) -> None:
    worst = 0.0

    @seed(11)
    @few
    @given(cases(OPERATORS[name], "float32"))
    def hold(case: Case) -> None:
        nonlocal worst
        arrays = case.arrays()
        with np.errstate(all="ignore"):
            outputs = case.op(*arrays)
        ratio = judge(forward_bounds(case.op, arrays, SINGLE), outputs).ratio
        if case.op.differentiable:
            grads = case.upstream(outputs)
            with np.errstate(all="ignore"):
                gradients = case.op.vjp(grads, arrays, outputs)
            bounds = gradient_bounds(case.op, arrays, grads, SINGLE)
            ratio = max(ratio, judge(bounds, gradients).ratio)
        assert ratio <= 1, case
        worst = max(worst, ratio)

    hold()
    assert worst < 1


def test_the_next_lower_precision_lies_outside() -> None:
    rng = np.random.default_rng(5)
    arrays = tuple(rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 3)))
    op = OPERATORS["MatMul"]()
    bounds = forward_bounds(op, arrays, SINGLE)
    assert judge(bounds, lower_precision(op, arrays, None, "float32")).ratio > 10


@pytest.mark.parametrize("name,tells", [("Sign", True), ("Floor", False)])
def test_where_no_rounding_changes_a_result_its_displaced_elements_lie_outside(
    name: str, tells: bool
) -> None:
    """Of steps a lower precision is the control, which these numbers do not show."""
    op, arrays = OPERATORS[name](), (np.float32([0.5, -1.5, 2.5, 0, -3.5]),)
    bounds = forward_bounds(op, arrays, SINGLE)
    assert (
        telling(bounds, arrays, lambda: lower_precision(op, arrays, None, "float32"))[0] is tells
    )
    (single,) = lower_precision(OPERATORS["Sign"](), (np.float32([0.5]),), None, "float32")
    assert single == [2]


def test_neighbouring_whole_numbers_differ_where_float64_does_not_tell_them_apart() -> None:
    largest = np.array([2**64 - 1], np.uint64)
    bound = Bound(largest, np.zeros(1), None)
    assert judge((bound,), (largest,)).right
    assert not judge((bound,), (largest - np.uint64(1),)).right


def test_tf32_holds_rounded_factors_and_rejects_the_next_lower_precision() -> None:
    rng = np.random.default_rng(5)
    arrays = tuple(rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 3)))
    op = OPERATORS["MatMul"]()
    (coarse,) = classes("float32", tf32=True)
    rounded = tuple(round_to(x.astype(np.float64), 11).astype(np.float32) for x in arrays)
    assert judge(forward_bounds(op, arrays, coarse), op(*rounded)).right
    assert judge(forward_bounds(op, arrays, SINGLE), op(*rounded)).ratio > 10
    assert not judge(
        forward_bounds(op, arrays, coarse), lower_precision(op, arrays, None, "tf32")
    ).right


def test_a_bar_cannot_be_lost_in_a_plain_array() -> None:
    x = Bar(np.ones(3), np.full(3, 0.1), arithmetic=SINGLE)
    with pytest.raises(TypeError, match="companion"):
        np.asarray(x)
    with pytest.raises(TypeError, match=r"may not call numpy\.median"):
        np.median(x)


def test_max_has_the_bar_of_those_that_could_be_it() -> None:
    x = Bar(np.array([1.0, 5.0, 4.95]), np.array([9.0, 0.01, 0.1]), arithmetic=SINGLE)
    assert x.max().companion == 9.0
    near = Bar(np.array([1.0, 5.0, 4.95]), np.array([0.5, 0.01, 0.1]), arithmetic=SINGLE)
    assert near.max().companion == 0.1


def test_at_a_kink_every_subgradient_is_right() -> None:
    arrays, grads = (np.array([-1.0, 0.0, 2.0], np.float32),), (np.full(3, 3.0, np.float32),)
    bounds = gradient_bounds(OPERATORS["Relu"](), arrays, grads, SINGLE)
    for subgradient in (0.0, 1.0, 3.0):
        assert judge(bounds, (np.array([0.0, subgradient, 3.0], np.float32),)).right
    assert not judge(bounds, (np.array([0.0, 0.0, 2.9], np.float32),)).right
    assert not judge(bounds, (np.array([0.1, 0.0, 3.0], np.float32),)).right


def test_at_a_tie_any_of_the_largest_may_get_the_gradient() -> None:
    arrays = (np.array([[[1.0, 2.0, 2.0, 0.0]]], np.float32),)
    op = OPERATORS["MaxPool"](kernel_shape=(2,))
    grads = (np.array([[[1.0, 4.0, 9.0]]], np.float32), None)
    bounds = gradient_bounds(op, arrays, grads, SINGLE)
    for got in ([0.0, 5.0, 9.0, 0.0], [0.0, 1.0, 13.0, 0.0]):
        assert judge(bounds, (np.array([[got]], np.float32),)).right
    assert not judge(bounds, (np.array([[[0.0, 0.0, 14.5, 0.0]]], np.float32),)).right


def test_an_exact_formula_must_be_met_exactly() -> None:
    arrays = (np.array([1.0, -2.0, 3.0], np.float32),)
    bounds = forward_bounds(OPERATORS["Relu"](), arrays, SINGLE)
    off = np.nextafter(np.array([1.0, 0.0, 3.0], np.float32), np.float32(9))
    assert judge(bounds, (np.array([1.0, 0.0, 3.0], np.float32),)).ratio == 0
    assert judge(bounds, (off,)).ratio == np.inf


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_infinity_is_demanded_of_what_surely_overflows(dtype: str) -> None:
    arrays = (np.array([5.0, 100.0], dtype_of(dtype)),)
    for arithmetic in classes(dtype):
        bounds = forward_bounds(OPERATORS["Exp"](), arrays, arithmetic)
        exact = np.exp(5.0)
        assert judge(bounds, (np.array([exact, np.inf]).astype(dtype_of(dtype)),)).right
        for wrong in (0.0, -np.inf, np.nan, 1e4):
            assert judge(bounds, (np.array([exact, wrong]).astype(dtype_of(dtype)),)).ratio > 1


def test_on_the_edge_of_overflow_both_sides_are_right() -> None:
    largest = float(np.finfo(np.float32).max)
    arrays = (np.array([largest], np.float32), np.array([largest * 2.0**-25], np.float32))
    bounds = forward_bounds(OPERATORS["Add"](), arrays, SINGLE)
    for honest in (largest, np.inf):
        assert judge(bounds, (np.array([honest], np.float32),)).right


def test_what_an_overflowed_intermediate_becomes_is_left_open() -> None:
    arrays = (np.array([1.0, 100.0], np.float32),)
    (sigmoid,) = (1 / (1 + np.exp(Bar(-arrays[0].astype(np.float64), arithmetic=SINGLE))),)
    assert np.isfinite(sigmoid.companion).all()
    (spread,) = (1 / np.exp(Bar(arrays[0].astype(np.float64), arithmetic=SINGLE)),)
    assert np.isfinite(spread.companion).tolist() == [True, False]


def test_a_sum_that_overflows_is_not_judged() -> None:
    arrays = (np.full((1, 3), 3e38, np.float32), np.ones((3, 1), np.float32))
    (bound,) = forward_bounds(OPERATORS["MatMul"](), arrays, SINGLE)
    assert bound is not None
    assert not bound.judged.any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_classes_contain_each_other(dtype: str) -> None:
    rng = np.random.default_rng(7)
    arrays = tuple(rng.standard_normal(s).astype(np.float16) for s in ((4, 50), (50, 3)))
    widths = []
    for arithmetic in classes(dtype):
        (bound,) = forward_bounds(OPERATORS["MatMul"](), arrays, arithmetic)
        assert bound is not None
        widths.append(float(np.median(bound.bar)))
    assert widths[0] < widths[1] < widths[2]


SUMS = {
    "x + x": (2, lambda x: x + x),
    "2 x": (2, lambda x: 2.0 * x),
    "sum": (5, lambda x: x.sum(1, keepdims=True)),
    "matmul": (5, lambda x: x @ np.ones((5, 3))),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("terms", "function"), SUMS.values(), ids=SUMS)
def test_what_may_overflow_has_no_finite_bar(dtype: str, terms: int, function: Any) -> None:
    scale = np.linspace(0.1, 1.3, 7)
    for arithmetic in classes(dtype):
        largest = np.repeat(scale[:, None] * (arithmetic.primitive.largest / terms), 5, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            result = function(Bar(largest, largest * 2.0**-9, arithmetic=arithmetic))
        finite = np.isfinite(result.companion)
        assert finite[scale < 0.9].all()
        assert not finite[scale > 0.999].any()


def test_a_backward_that_names_its_outputs_reads_them() -> None:
    for name, reads in (("Softmax", True), ("Tanh", True), ("Gelu", False), ("Conv", False)):
        assert reads_outputs(OPERATORS[name].backward) is reads, name
    assert reads_outputs(len)
    assert reads_outputs(lambda *arguments: arguments[2])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_backward_sees_its_outputs_as_they_were_stored(dtype: str) -> None:
    rng = np.random.default_rng(17)
    x, dy = (rng.standard_normal((5, 7)).astype(dtype_of(dtype)) for _ in range(2))
    stored = np.exp(x.astype(np.float32)).astype(dtype_of(dtype))
    honest = (dy.astype(np.float32) * stored.astype(np.float32)).astype(dtype_of(dtype))
    tightest, *_ = classes(dtype)
    (product,) = forward_bounds(OPERATORS["Mul"](), (dy, stored), tightest)
    bounds = gradient_bounds(OPERATORS["Exp"](), (x,), (dy,), tightest)
    assert product is not None
    assert bounds[0] is not None
    assert (bounds[0].bar > 1.5 * product.bar).all()
    assert 0.2 < judge(bounds, (honest,)).ratio <= 1


def test_bars_leave_the_inputs_as_they_are() -> None:
    rng = np.random.default_rng(19)
    arrays = tuple(rng.standard_normal(s) for s in ((3, 4, 5), (5,), (5,)))
    before = tuple(a.copy() for a in arrays)
    op = OPERATORS["LayerNormalization"]()
    grads = tuple(rng.standard_normal(np.shape(y)) for y in op(*arrays))
    (double,) = classes("float64")
    bounds = gradient_bounds(op, arrays, grads, double)
    assert judge(bounds, op.vjp(grads, arrays)).right
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


def test_a_partial_sum_may_be_in_an_order_of_its_own() -> None:
    """JAX's scan adds the last two first, and so rounds a number that a running sum never has."""
    x = np.array([-0.9914776, 0.45967698, 0.5758653], np.float32)
    y = np.array([x[0], x[0] + x[1], (x[2] + x[1]) + x[0]], np.float32)
    assert y[2] != (x[0] + x[1]) + x[2]
    assert front_door.judge(CumSum(), [x, np.array(0)], [y]).right
    assert not front_door.judge(CumSum(), [x, np.array(0)], [y + np.float32(2e-6)]).right


def test_inputs_of_sum_may_be_added_in_any_order() -> None:
    a, b, c = np.float32([[1.0], [1e-7], [-1.0]])
    assert front_door.judge(Sum(), [a, b, c], [(a + c) + b]).right
    assert front_door.judge(Sum(), [a, b, c], [(a + b) + c]).right
    assert not front_door.judge(Sum(), [a, b, c], [a * 0 + np.float32(1e-6)]).right


def test_an_overflow_of_sum_is_demanded_where_it_is_certain() -> None:
    """Of three tensors two may be added first, whose sum overflows; of two there is no choice."""
    a, b, infinite, largest = np.float16([[6e4], [-6e4], [np.inf], [65504]])
    assert front_door.judge(Sum(), [a, a], [infinite]).right
    assert not front_door.judge(Sum(), [a, a], [largest]).right
    assert front_door.judge(Sum(), [a, b, a], [a]).right
    assert front_door.judge(Sum(), [a, a, b], [infinite]).right
    a, b, infinite = np.float32([[3e38], [-3e38], [np.inf]])
    assert front_door.judge(Sum(), [a, a, b], [infinite]).right


def test_a_sum_in_16_bits_is_of_the_class_of_its_primitives() -> None:
    """Additions are all that Sum is, so they round in P; a running sum is one primitive of P's."""
    xs = [np.full(1, 1 + k / 8, np.float16) for k in range(64)]
    total = xs[0]
    for x in xs[1:]:
        total = (total + x).astype(np.float16)
    assert front_door.judge(Sum(), xs, [total]).arithmetic == "P"
    x = np.concatenate(xs)
    sums = np.add.accumulate(x, dtype=np.float16)
    assert front_door.judge(CumSum(), [x, np.array(0)], [sums]).arithmetic == "S"


def test_an_order_is_in_doubt_where_neighbours_may_change_places() -> None:
    x = Bar(np.array([[3.0, 1.0, 1.1, 2.0]]), np.full((1, 4), 0.06), arithmetic=SINGLE)
    order = np.argsort(x)
    assert order.value.tolist() == [[1, 2, 3, 0]]
    assert np.isinf(order.companion).tolist() == [[True, True, False, False]]
    taken = np.take_along_axis(x * 1.0, order[:, 1:], -1)
    assert taken.value.tolist() == [[1.1, 2.0, 3.0]]
    assert np.isinf(taken.companion).tolist() == [[True, False, False]]
    for places, known in ((order[:, :2], False), (order[:, 2:], True)):
        gates = np.zeros_like(x)
        np.put_along_axis(gates, places, Bar(np.ones((1, 2)), arithmetic=SINGLE), -1)
        assert np.isfinite(gates.companion).all() is np.bool_(known)
    certain = np.argsort(Bar(np.array([2.0, 1.0]), arithmetic=SINGLE))
    assert type(certain) is np.ndarray


def test_order_statistics_lie_between_those_of_both_ends() -> None:
    rng = np.random.default_rng(4)
    value, bar = rng.normal(size=(20, 7)), rng.uniform(0, 0.5, size=(20, 7))
    expected = np.sort(Bar(value, bar, arithmetic=SINGLE), axis=0)
    for _ in range(50):
        moved = np.sort(value + rng.uniform(-1, 1, size=bar.shape) * bar, axis=0)
        assert (np.abs(moved - expected.value) <= expected.companion).all()
    assert (expected.companion <= bar.max()).all()


def test_a_product_in_any_order_is_unknown_where_another_one_leaves_the_range() -> None:
    """inf and 0 on the way, of factors whose product in order of appearance is 1."""
    factors = np.array([[1e30, 1e-30] * 4, [2.0, 0.5] * 4], np.float64)
    product = Bar(factors, arithmetic=SINGLE).prod(-1)
    assert np.isfinite(product.companion).tolist() == [False, True]
    assert Bar(np.zeros((0, 3, 0)), arithmetic=SINGLE).prod(1).shape == (0, 0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_no_nan_of_the_reference_signals(dtype: str) -> None:
    """Of one that does, NaN^0 is 1 or NaN, as the processor has it."""
    patterns = octets(np.random.Philox(1), (2**14,), dtype_of(dtype), 0, 64)
    signals = signalling(patterns)
    assert signals.any()
    (wide,), (bar,) = double((patterns,)), exact_bars((patterns,), classes(dtype)[0])
    for values in (wide, bar.value):
        assert not signalling(values).any()
        assert np.isnan(values[signals]).all()
        with np.errstate(invalid="ignore"):
            plain = patterns.astype(np.float64)
        np.testing.assert_array_equal(values, plain)
        numbers = ~np.isnan(plain)
        np.testing.assert_array_equal(np.signbit(values[numbers]), np.signbit(plain[numbers]))
        assert (Pow()(values, np.zeros(2**14))[0] == 1).all()
