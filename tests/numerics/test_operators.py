"""Python's operators on tracked arrays are NumPy's, on both sides and in place."""

import operator
from typing import Any

import numpy as np
import pytest

from d5test.numerics.arithmetic import classes
from d5test.numerics.bars import Bar
from d5test.numerics.dual import Dual

(DOUBLE,) = classes("float64")
X, Y = np.array([[1.5, -2.0, 0.25]]), np.array([[3.0], [0.5]])
BINARY = (operator.add, operator.sub, operator.mul, operator.truediv)


def bar(x: Any) -> Bar:
    return Bar(x.copy(), np.full(x.shape, 2.0**-40), arithmetic=DOUBLE)


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [bar, Dual], ids=["bar", "dual"])
def test_either_side_may_be_plain(function: Any, kind: Any) -> None:
    want = function(X, Y)
    for result in (function(kind(X), kind(Y)), function(X, kind(Y)), function(kind(X), Y)):
        assert type(result) in (Bar, Dual)
        assert np.array_equal(result.value, want)
    assert np.array_equal(function(kind(X), 4).value, function(X, 4))
    assert np.array_equal(function(4.0, kind(X)).value, function(4.0, X))


def test_matrix_products_from_either_side() -> None:
    for result in (bar(Y) @ bar(X), Y @ bar(X), bar(Y) @ X):
        assert np.array_equal(result.value, Y @ X)
        assert (result.companion > 0).all()


def test_in_place_changes_the_array_and_its_bar() -> None:
    x = bar(X)
    value, companion, before = x.value, x.companion, x.companion.copy()
    x *= 3.0
    assert x.value is value
    assert x.companion is companion
    assert np.array_equal(value, 3 * X)
    assert (companion >= 3 * before).all()


@pytest.mark.parametrize(
    "function",
    [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne],
    ids=lambda f: f.__name__,
)
def test_comparisons(function: Any) -> None:
    assert np.array_equal(function(bar(X), Y), function(X, Y))
