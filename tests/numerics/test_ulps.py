"""Errors in ULPs, by hand and against NumPy's spacing."""

from math import inf, nan

import numpy as np
import pytest

from d5test.accuracy import LARGEST, MEAN, ROUNDED, Accuracy
from d5test.checks.accuracy import errors_in_ulps, spacing
from d5test.numerics import elementary
from d5test.numerics.arithmetic import classes, format_of


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_spacing_is_that_of_numpy(dtype: str) -> None:
    info, rng = np.finfo(dtype), np.random.default_rng(3)
    x = np.ldexp(rng.uniform(1, 2, 500), rng.integers(info.minexp, info.maxexp, 500)).astype(dtype)
    x = np.append(x, [0, info.tiny, info.smallest_subnormal]).astype(dtype)
    expected = np.abs(np.spacing(np.abs(x))).astype(np.float64)
    assert np.array_equal(spacing(x.astype(np.float64), format_of(dtype)), expected)


def measured(
    got: list[float], exact: list[float], *, dtype: str = "float32", flushes: bool = False
) -> Accuracy:
    x = np.arange(1, len(got) + 1, dtype=np.float64)
    arithmetic = classes(dtype, flushes=flushes)[0]
    off = np.full(x.shape, elementary.LIBRARY)
    return errors_in_ulps((x,), np.array(got, dtype), np.array(exact), off, arithmetic)


def test_the_largest_the_mean_and_the_share() -> None:
    one = 2.0**-23
    found = measured([1, 1 + one, 4 + 8 * one], [1, 1.25 * one + 1, 4])
    assert (found.inputs, found.rounded) == (3, 2)
    assert (found.largest, found.at, found.got, found.want) == (
        pytest.approx(2, rel=1e-6), (3.0,), 4 + 8 * one, 4.0,
    )  # fmt: skip
    assert found.mean == pytest.approx((0 + 0.25 + 2) / 3, rel=1e-6)
    assert found.share_rounded == pytest.approx(2 / 3)
    assert [s.metric for s in found.samples] == [LARGEST, MEAN, ROUNDED]
    assert {s.metric.gate for s in found.samples} == {"exact"}


def test_a_nan_for_a_number_is_infinitely_wrong_and_left_out_of_the_mean() -> None:
    found = measured([nan, 2], [1, 2])
    assert (found.largest, found.at, found.mean) == (inf, (1.0,), 0.0)


def test_where_there_is_no_value_nothing_is_counted() -> None:
    assert measured([1, 2], [nan, 2]).inputs == 1
    assert measured([1], [nan]) == Accuracy()


def test_overflow_is_no_error_and_an_invented_infinity_is_one() -> None:
    largest = float(np.finfo(np.float32).max)
    assert measured([inf], [1e39]).largest == 0
    assert measured([largest], [largest]).largest == 0
    assert measured([inf], [1.0]).largest > 1e30


def test_what_is_flushed_is_not_counted() -> None:
    assert measured([0, 1], [1e-39, 1], flushes=True).inputs == 1
    assert measured([0, 1], [1e-39, 1], flushes=True).largest == 0
    assert measured([0, 1], [1e-39, 1]).largest > 1e5


def test_in_float64_what_the_reference_may_be_off_is_taken_off() -> None:
    ulp = 2.0**-52
    assert measured([1 + 3 * ulp], [1.0], dtype="float64").largest == 0
    found = measured([1 + 100 * ulp], [1.0], dtype="float64")
    assert 95 <= found.largest <= 97
    assert found.rounded is None
    assert len(found.samples) == 2


def test_a_sum_is_over_the_inputs_of_both() -> None:
    one, other = measured([1, 2], [1, 2.0]), measured([3], [2.0])
    both = one + other
    assert (both.inputs, both.largest, both.at, both.rounded) == (3, other.largest, (1.0,), 2)
    assert both.total == one.total + other.total
    assert Accuracy() + other == other


def test_what_is_rounded_correctly_is_known_in_float64_too() -> None:
    ulp, xs = 2.0**-52, (np.array([1.0, 3.0, 5.0]), np.array([2.0, 4.0, 6.0]))
    got, exact = np.array([1 + ulp, 2, 3]), np.array([1.0, 2.0, 3.0])
    found = errors_in_ulps(xs, got, exact, np.full(3, elementary.ROUNDED), classes("float64")[0])
    assert (found.largest, found.at, found.rounded) == (pytest.approx(0.5), (1.0, 2.0), 2)
    assert found.share_rounded == pytest.approx(2 / 3)


def test_either_input_may_be_flushed() -> None:
    xs = (np.array([1e-39, 1.0, 1.0]), np.array([1.0, 1e-39, 1.0]))
    got, off = np.zeros(3, np.float32), np.full(3, elementary.ROUNDED)
    for flushes, inputs in ((True, 1), (False, 3)):
        arithmetic = classes("float32", flushes=flushes)[0]
        assert errors_in_ulps(xs, got, np.ones(3), off, arithmetic).inputs == inputs
