"""How accurate functions of two inputs are, and what is wrong with those made wrong on purpose."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy, rounded, widened
from d5test.checks import CHECKS, Fault
from d5test.exploration.explore import Exploration
from d5test.outcome.tally import Tally
from d5test.reference.operators import OPERATORS
from tests.faults.score import Local

CHECK = CHECKS["accuracy"]
ARITHMETIC = ("Add", "Div", "Mul", "Sub")
DTYPES = ("float64", "float32", "float16", "bfloat16")


def found(
    name: str, dtype: str, function: Callable[..., Any] | None = None, **facts: Any
) -> tuple[list[Fault], Tally]:
    """The faults of a backend that computes `function(x, y)`, or as NumPy does."""

    def call(op: Any, *xs: Any) -> Any:
        assert function is not None
        return rounded(function(*(widened(x) for x in xs)), xs)

    row = replace(Numpy.rows[name], **facts) if function is None else Row(call, **facts)
    backend = type("Made", (Numpy,), {"rows": {name: row}})
    tally = Tally("made", "accuracy", name, dtype)
    cases = CHECK.every(OPERATORS[name], dtype)
    client = Local("made", backend())
    cell = Exploration(client, CHECK, OPERATORS[name], dtype, tally, 1, lambda case: False)
    return cell.worst(cases), tally


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*ARITHMETIC, "Pow"])
def test_numpy_is_right_and_nearly_all_is_judged(name: str, dtype: str) -> None:
    faults, tally = found(name, dtype)
    assert faults == []
    assert tally.void == 0
    assert tally.right == len(CHECK.every(OPERATORS[name], dtype))
    assert tally.share > 0.75


@pytest.mark.parametrize("name", ARITHMETIC)
def test_one_operation_of_the_processor_is_correctly_rounded(name: str) -> None:
    """In float64, too, where nothing has more digits."""
    for dtype, largest in (("float64", 0.0), ("float32", 0.5)):
        accuracy = found(name, dtype)[1].accuracy[f"{name}()"]
        assert accuracy.largest <= largest
        assert accuracy.share_rounded == 1
        assert len(accuracy.at) == 2


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_product_with_the_reciprocal_is_no_fault_and_is_measured(dtype: str) -> None:
    """x (1 / y) has two roundings; the reciprocal may underflow, which is none of them."""

    def by_reciprocal(x: Any, y: Any) -> Any:
        usual = (np.abs(y) > 2.0**-100) & (np.abs(y) < 2.0**100)
        return np.where(usual, x * (1 / y), x / y)

    faults, tally = found("Div", dtype, by_reciprocal)
    assert faults == []
    accuracy = tally.accuracy["Div()"]
    assert (0.45 if dtype == "float64" else 0.9) < accuracy.largest <= 1.5
    assert 0.5 < (accuracy.share_rounded or 0) < 0.999


def through_logarithms(x: Any, y: Any) -> Any:
    """The error of y ln x is that of the result, times y ln x."""
    power = np.exp(y * np.log(np.abs(x))).astype(x.dtype)
    return np.where((x > 0) & np.isfinite(x * y), power, np.power(x, y))


def unsigned(x: Any, y: Any) -> Any:
    """Odd powers of negative numbers lose their sign."""
    return np.where((x < 0) & (y == np.rint(y)), np.power(np.abs(x), y), np.power(x, y))


def even_from_afar(x: Any, y: Any) -> Any:
    """Whether y is odd is asked of an integer of 8 bits."""
    large = (np.abs(y) > 127) & np.isfinite(y) & (x < 0)
    return np.where(large & (y == np.rint(y)), np.power(np.abs(x), y), np.power(x, y))


def powr(x: Any, y: Any) -> Any:
    """IEEE 754's other power, e^(y ln x), has no 0^0."""
    return np.where((x == 0) & (y == 0), np.nan, np.power(x, y)).astype(x.dtype)


def beyond(x: Any, y: Any) -> Any:
    """A negative number has a root."""
    return np.power(np.where((x < 0) & (y == 0.5), -x, x), y)


def positive_zero(x: Any, y: Any) -> Any:
    return x / y + x.dtype.type(0)


def finite(x: Any, y: Any) -> Any:
    """A number divided by zero is the largest number."""
    return np.where((y == 0) & np.isfinite(x) & (x != 0), np.nan_to_num(x / y), x / y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "function", "kind", "words"),
    [
        ("Pow", through_logarithms, "value", "the result is wrong"),
        ("Pow", unsigned, "value", "the result is wrong"),
        ("Pow", even_from_afar, "value", "the result is wrong"),
        ("Pow", powr, "value", "the result is wrong"),
        ("Pow", beyond, "special", "where NaN is due"),
        ("Div", positive_zero, "sign of zero", "a zero has the wrong sign"),
        ("Div", finite, "value", "the result is wrong"),
        ("Mul", np.fmax, "value", "the result is wrong"),
    ],
)
def test_what_is_wrong_is_found(
    name: str, function: Callable[..., Any], kind: str, words: str, dtype: str
) -> None:
    faults, _ = found(name, dtype, function)
    fault = next(fault for fault in faults if fault.kind == kind)
    assert words in fault.headline
    assert len(fault.details["input"].split(", ")) == 2


def test_a_subnormal_argument_may_be_read_as_zero_and_as_nothing_else() -> None:
    tiny = np.finfo(np.float32).tiny

    def flushing(x: Any, y: Any) -> Any:
        x, y = (np.where(np.abs(a) < tiny, np.copysign(np.float32(0), a), a) for a in (x, y))
        return np.power(x, y)

    def library(x: Any, y: Any) -> Any:
        """A power of 2^-150, as of a library that scales what is read as zero."""
        small = (x != 0) & (np.abs(x) < tiny)
        wide = x.astype(np.float64)
        return np.power(np.where(small, np.copysign(2.0**-150, wide), wide), y).astype(np.float32)

    assert found("Pow", "float32", flushing, flushes=True)[0] == []
    for function, flushes in ((flushing, False), (library, True)):
        faults, _ = found("Pow", "float32", function, flushes=flushes)
        assert "value" in [fault.kind for fault in faults]
