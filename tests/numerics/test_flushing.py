"""What a backend that flushes may return: zero, and no other number that is wrong."""

import numpy as np
import pytest

from d5test.case import FLOATS, dtype_of
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import forward_bounds
from d5test.numerics.explanation import may_cancel
from d5test.numerics.judgement import Judgement, ratios
from d5test.reference.operators import OPERATORS


def worst(name: str, got: float, *inputs: float, dtype: str) -> float:
    """error / bar of one result of an operator on numbers, in the loosest class."""
    arrays = [np.asarray([x], dtype_of(dtype)) for x in inputs]
    arithmetic = classes(dtype, flushes=True)[-1]
    (bound,) = forward_bounds(OPERATORS[name](), arrays, arithmetic)
    assert bound is not None
    return float(ratios(bound, np.asarray([got], dtype_of(dtype)))[0])


def smallest(dtype: str) -> float:
    return classes(dtype)[0].storage.smallest_normal


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_function_that_is_tiny_may_be_zero_and_not_twice_the_smallest_normal(dtype: str) -> None:
    x = np.log(smallest(dtype)) - 12
    x = float(np.asarray(x).astype(dtype_of(dtype)))
    assert worst("Exp", 0, x, dtype=dtype) <= 1
    assert worst("Exp", np.exp(x), x, dtype=dtype) <= 1
    assert worst("Exp", 1.9 * smallest(dtype), x, dtype=dtype) > 1
    assert worst("Exp", 0.5 * smallest(dtype), x, dtype=dtype) > 1


@pytest.mark.parametrize("name", ["Mul", "Div"])
def test_a_product_that_is_tiny_may_be_zero(name: str) -> None:
    x, y = 2.0**-70, 2.0**-70 if name == "Mul" else 2.0**70
    assert worst(name, 0, x, y, dtype="float32") <= 1
    assert worst(name, 2.0**-126, x, y, dtype="float32") > 1


def test_an_argument_of_a_difference_may_be_read_as_zero() -> None:
    x, y = float(np.float32(0.99 * 2.0**-126)), 2.0**-126
    assert worst("Sub", x - y, x, y, dtype="float32") <= 1
    assert worst("Sub", -y, x, y, dtype="float32") <= 1


def test_an_argument_that_is_compared_may_be_read_as_zero() -> None:
    x = float(np.float32(-0.9 * 2.0**-126))  # and then it is not negative
    for got in (x, 0.01 * x, 0.0):
        assert worst("LeakyRelu", got, x, dtype="float32") <= 1
    assert worst("LeakyRelu", -3 * x, x, dtype="float32") > 1
    assert worst("LeakyRelu", 2 * x, 2 * x, dtype="float32") > 1  # a normal number


def test_a_difference_of_numbers_near_1_errs_by_their_spacing() -> None:
    ulp = 2.0**-23
    for error, may in ((4 * ulp, True), (ulp / 4, True), (5 * ulp, False), (1e-30, False)):
        judgement = Judgement(got=error, want=0.0)
        assert may_cancel(judgement, ulp, [np.ones(1, np.float32)]) is may
