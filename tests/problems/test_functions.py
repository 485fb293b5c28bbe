"""The fixed cases of elementary functions: all numbers of 16 bits, strata, thresholds."""

from math import log

import numpy as np
import pytest

from d5test.case import dtype_of
from d5test.problems.functions import PATTERNS, THRESHOLDS, function_cases, kinds, thresholds
from d5test.reference.operators import OPERATORS
from d5test.values import numbers, ordinals

Exp, Gelu, Log, Reciprocal, Sin, Tanh = (
    OPERATORS[name] for name in ("Exp", "Gelu", "Log", "Reciprocal", "Sin", "Tanh")
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_16_bits_is_there_once(dtype: str) -> None:
    arrays = [case.arrays()[0].view(np.uint16) for case in function_cases(Tanh, dtype)]
    assert np.array_equal(np.concatenate(arrays), np.arange(PATTERNS))


@pytest.mark.parametrize(("dtype", "each"), [("float32", 128), ("float64", 16)])
def test_every_sign_and_exponent_has_its_inputs(dtype: str, each: int) -> None:
    unsigned = np.dtype(f"u{dtype_of(dtype).itemsize}")
    cases = [c for c in function_cases(Tanh, dtype) if c.inputs[0].values[0] == "every"]
    patterns = np.concatenate([case.arrays()[0].view(unsigned) for case in cases])
    leading = (patterns >> unsigned.type(8 * unsigned.itemsize - 16)).astype(int)
    assert np.array_equal(np.bincount(leading), np.full(PATTERNS, 2))
    _, counts = np.unique(patterns >> unsigned.type(np.finfo(dtype).nmant), return_counts=True)
    assert set(counts) == {2 * each}
    drawn = patterns[:PATTERNS]
    assert len(np.unique(drawn)) == PATTERNS
    below = drawn & unsigned.type((1 << (8 * unsigned.itemsize - 16)) - 1)
    assert len(np.unique(below)) > PATTERNS / 2  # not the same bits in each slice


def test_each_attribute_that_is_another_function_has_cases() -> None:
    assert {case.op for case in function_cases(Gelu, "float16")} == {
        Gelu(), Gelu(approximate="tanh")
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_thresholds_are_where_the_result_changes_its_kind(dtype: str) -> None:
    info = np.finfo(dtype)
    zero, subnormal, infinite = thresholds(Exp(), dtype)
    assert zero == pytest.approx(log(info.smallest_subnormal) - log(2), rel=1e-6)
    assert subnormal == pytest.approx(log(info.tiny), rel=1e-6)
    assert infinite == pytest.approx(log(info.max), rel=1e-6)
    after = np.array([infinite], dtype)
    before = np.nextafter(after, dtype_of(dtype).type(0))
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(after.astype(np.float64)).astype(dtype))
        assert np.isfinite(np.exp(before.astype(np.float64)).astype(dtype))
    assert 1.0 in thresholds(Log(), dtype)
    assert 0.0 in thresholds(Reciprocal(), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_thresholds_of_a_sine_are_the_first_multiples_of_pi(dtype: str) -> None:
    places = np.array(thresholds(Sin(), dtype))
    assert places.size == THRESHOLDS
    multiples = places / np.pi
    assert np.abs(multiples - np.rint(multiples)).max() < 1e-5
    assert {*np.rint(multiples)} == {*range(-14, 15)}


def test_neighbours_of_a_threshold_are_neighbours() -> None:
    near = [c for c in function_cases(Exp, "float32") if c.inputs[0].values[0] == "near"]
    assert len(near) == 3
    for case in near:
        (x,) = case.arrays()
        assert np.array_equal(np.diff(ordinals(x)), np.ones(x.size - 1))
        assert x[0] < np.float32(case.inputs[0].values[1]) < x[-1]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ordinals_count_the_numbers(dtype: str) -> None:
    zero, one, info = dtype_of(dtype).type(0), dtype_of(dtype).type(1), np.finfo(dtype)
    some = np.array([-np.inf, -1, -info.smallest_subnormal, -zero, zero, info.tiny, one], dtype)
    assert np.array_equal(numbers(ordinals(some), some.dtype).view(np.uint8), some.view(np.uint8))
    assert list(ordinals(some[2:5])) == [-2, -1, 0]
    (here, there) = ordinals(np.array([one, np.nextafter(one, zero)], dtype))
    assert here - there == 1


def test_kinds() -> None:
    tiny = np.finfo(np.float32).tiny
    values = np.array([0, -0.0, tiny / 2, tiny, -tiny, 3, -np.inf, np.inf, np.nan], np.float32)
    assert list(kinds(values)) == [0, 0, 1, 2, -2, 2, -3, 3, 4]
