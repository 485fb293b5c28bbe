"""Grades: honest stable arithmetic is stable, ONNX's formula is naive, and wrong is neither."""

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from d5test.accuracy import Grade
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy, rounded, widened
from d5test.case import Operator
from d5test.checks import CHECKS
from d5test.exploration.explore import Exploration
from d5test.outcome.tally import Tally
from d5test.reference.operators import OPERATORS
from d5test.reference.stable import FORMS, stable
from tests.faults.score import Local

CHECK = CHECKS["accuracy"]
Function = Callable[[Any, Any], Any]


def grades(operator: type[Operator], dtype: str, function: Function, **facts: Any) -> Any:
    """Of each function of an operator, where a backend computes `function(op, x)`."""

    def call(op: Any, x: Any) -> Any:
        return rounded(function(operator(**op.attributes), widened(x)), (x,))

    rows = {operator.__name__: Row(call, gradient="none", **facts)}
    backend = type("Made", (Numpy,), {"rows": rows})
    tally = Tally("made", "accuracy", operator.__name__, dtype)
    cases = CHECK.every(operator, dtype)
    client = Local("made", backend())
    Exploration(client, CHECK, operator, dtype, tally, 1, lambda case: False).worst(cases)
    return tally.grades


def names(found: dict[str, Grade]) -> set[str]:
    return {grade.name for grade in found.values()}


def formula(op: Operator, x: Any) -> Any:
    (y,) = op(x)
    return y


def written(op: Any, x: Any) -> Any:
    """The stable forms as a framework has them, in the dtype of x and in other words than ours."""
    log1p_exp = np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, x.dtype.type(20)))))
    match op.name:
        case "Softplus":
            return log1p_exp
        case "Sigmoid":
            return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
        case "Gelu" if op.approximate == "none":
            return x * ndtr(x)
        case "Gelu":
            inner = np.sqrt(2 / np.pi).astype(x.dtype) * (x + x.dtype.type(0.044715) * x**3)
            return np.where(x < 0, x * np.exp(2 * inner), x) / (1 + np.exp(-2 * np.abs(inner)))
        case "HardSigmoid":
            # an fma: below float64 the product is exact and the sum as good
            line = x.astype(np.float64) * op.alpha + op.beta
            return np.clip(line, 0, 1).astype(x.dtype)
    return FORMS[type(op)](op, x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("operator", FORMS, ids=lambda cls: cls.__name__)
def test_what_is_computed_in_a_stable_way_is_stable(operator: type[Operator], dtype: str) -> None:
    """In class F, the tightest: float32 inside."""
    found = grades(operator, dtype, written, arithmetic="F")
    assert names(found) == {"stable"}, found
    assert 0.05 < max(grade.ratio for grade in found.values()) <= 1


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("operator", FORMS, ids=lambda cls: cls.__name__)
def test_the_formula_of_onnx_is_naive(operator: type[Operator], dtype: str) -> None:
    found = grades(operator, dtype, formula)
    assert names(found) == {"naive"}, found


def test_where_it_is_naive() -> None:
    found = grades(OPERATORS["Gelu"], "float32", formula)
    assert -7 < found["Gelu()"].at[0] < -5  # the first at which erf is -1 has the tightest bar
    found = grades(OPERATORS["Softplus"], "float32", formula)
    assert found["Softplus()"].at[0] > 88  # e^x overflows on the way, the result does not
    assert found["Softplus()"].ratio == inf


@pytest.mark.parametrize(("ulps", "grade"), [(2.5, "stable"), (6.0, "naive")])
def test_as_good_as_a_library_is_stable(ulps: float, grade: str) -> None:
    """Above 0 our form of softplus is a sum with a small error, other stable forms are not."""

    def off(op: Operator, x: Any) -> Any:
        y = stable(op, x.astype(np.float64))
        return np.where((x > 2) & (x < 3), y + ulps * 2.0**-22, y).astype(x.dtype)

    (found,) = grades(OPERATORS["Softplus"], "float32", off).values()
    assert found.name == grade
    assert 2 < found.at[0] < 3


def test_the_class_that_the_row_allows_counts() -> None:
    """A product rounded to 16 bits, which class F does not have."""

    def in_storage(op: Operator, x: Any) -> Any:
        half = x.astype(np.float16)
        e = np.exp(-np.abs(half)).astype(np.float16)
        return np.where(half < 0, e, np.float16(1)) / (1 + e)

    found = {a: grades(OPERATORS["Sigmoid"], "float16", in_storage, arithmetic=a) for a in "FP"}
    assert names(found["P"]) == {"stable"}
    assert names(found["F"]) != {"stable"}


def test_wrong_results_are_not_graded_stable() -> None:
    def cut(op: Any, x: Any) -> Any:
        return np.where(x < -18, 0, written(op, x)).astype(x.dtype)

    (found,) = grades(OPERATORS["Sigmoid"], "float32", cut).values()
    assert found.name == "wrong"


def test_where_the_formula_overflows_the_stable_form_still_grades() -> None:
    """x^3 is infinite in float32 there, so that ONNX's formula has no bar."""

    def lost(op: Any, x: Any) -> Any:
        return np.where(x < -1e20, np.float32(np.nan), written(op, x))

    found = grades(OPERATORS["Gelu"], "float32", lost)["Gelu(approximate='tanh')"]
    assert found.name == "naive"
    assert found.at[0] < -1e20


def test_what_has_no_stable_form_has_no_grade() -> None:
    assert grades(OPERATORS["Tanh"], "float32", formula) == {}


def test_grades_add_up() -> None:
    stable, naive, wrong = Grade(0.5, (1.0,)), Grade(7.0, (-3.0,)), Grade(wrong=True)
    assert [grade.name for grade in (stable, naive, wrong)] == ["stable", "naive", "wrong"]
    assert stable + naive == naive + stable == naive
    assert (stable + wrong).name == (wrong + stable).name == "wrong"
    assert (naive + wrong + stable) == Grade(7.0, (-3.0,), True)
    assert (naive + wrong).name == "naive"
    assert (Grade(1.0) + stable).name == "stable"
