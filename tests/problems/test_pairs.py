"""The fixed cases of functions of two inputs: a grid of leading bytes, strata, special numbers."""

from typing import Any

import numpy as np
import pytest

from d5test.case import dtype_of
from d5test.problems.functions import OCTETS, function_cases, powers
from d5test.reference.operators import OPERATORS
from d5test.values import finfo, special_numbers

Div, Pow = OPERATORS["Div"], OPERATORS["Pow"]
DTYPES = ("float64", "float32", "float16", "bfloat16")


def pairs(operator: Any, dtype: str, regime: str) -> list[tuple[Any, ...]]:
    """The inputs of the cases whose first input is of a regime."""
    cases = (c for c in function_cases(operator, dtype) if c.inputs[0].values[0] == regime)
    return [case.arrays() for case in cases]


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_leading_byte_meets_each_other_once(dtype: str) -> None:
    unsigned = np.dtype(f"u{dtype_of(dtype).itemsize}")
    rest = 8 * unsigned.itemsize - 8
    sides = zip(*pairs(Div, dtype, "octets"), strict=True)
    x, y = (np.concatenate(side).view(unsigned) for side in sides)
    met = (x >> unsigned.type(rest)).astype(int) * OCTETS + (y >> unsigned.type(rest)).astype(int)
    assert np.array_equal(np.sort(met), np.arange(OCTETS**2))
    below = unsigned.type((1 << rest) - 1)
    assert len(np.unique(x & below)) > min(2.0**rest, OCTETS**2) / 2  # others in each slice
    assert np.mean((x & below) == (y & below)) < 0.01


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_reach_both_ends_of_the_range_and_stay_near_it(dtype: str) -> None:
    info = finfo(dtype_of(dtype))
    strata = {tuple(t.values for t in c.inputs): c for c in function_cases(Pow, dtype)}
    for stratum in powers(dtype)[:3]:
        x, y = (np.asarray(a).astype(np.float64) for a in strata[stratum].arrays())
        with np.errstate(all="ignore"):
            z = np.abs(np.power(x, y))
        within = (z > float(info.smallest_normal)) & (z < float(info.max))
        assert 0.7 < within.mean() <= 1, stratum
        assert z[within].max() > float(info.max) ** 0.6, stratum
        assert z[within].min() < float(info.smallest_normal) ** 0.6, stratum


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_special_number_meets_every_other(dtype: str) -> None:
    numbers = special_numbers(dtype_of(dtype))
    ((x, y),) = pairs(Pow, dtype, "special")
    assert len({(a.tobytes(), b.tobytes()) for a, b in zip(x, y, strict=True)}) == numbers.size**2
    assert {0.0, 1.0, -1.0, np.inf, -np.inf, 0.5} < set(numbers)
    assert np.isnan(numbers).sum() == 1
    assert np.signbit(numbers[numbers == 0]).tolist() == [False, True]
    kept = numbers.astype(dtype_of(dtype)).astype(np.float64)
    assert np.array_equal(kept, numbers, equal_nan=True)  # the dtype has them all
    finite = numbers[np.isfinite(numbers)]
    odd = finite[finite % 2 == 1].max()
    assert (dtype_of(dtype).type(odd) + dtype_of(dtype).type(1)) == odd + 1
    assert odd + 1 in numbers
    assert float(dtype_of(dtype).type(int(odd) + 2)) != int(odd) + 2  # beyond, all are even


def test_slices_are_few_and_the_same_in_every_run() -> None:
    for operator, count in ((Div, 36), (Pow, 37)):
        cases = function_cases(operator, "float32")
        assert len(cases) == count
        for one, other in zip(cases, function_cases(operator, "float32"), strict=True):
            assert one == other
            assert [a.tobytes() for a in one.arrays()] == [a.tobytes() for a in other.arrays()]
