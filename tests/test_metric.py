"""The confidence interval of a median, against its definition."""

import numpy as np
import pytest

from d5test.metric import TIME, Sample, median_interval


def test_the_interval_is_the_one_of_the_tables() -> None:
    # n = 20: the 6th and the 15th value hold the median with 95.9 %
    assert median_interval(range(1, 21)) == (6.0, 15.0)


def test_five_values_have_no_interval() -> None:
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([1, 2, 3, 4, 5, 6]) == (1.0, 6.0)


@pytest.mark.parametrize("n", [8, 15, 40])
def test_it_holds_the_median_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(2000):
        low, high = median_interval(rng.exponential(size=n)) or (0.0, 0.0)
        held += low <= np.log(2) <= high
    assert held / 2000 > 0.94


def test_a_sample_knows_its_median() -> None:
    sample = Sample(TIME, (3.0, 1.0, 2.0))
    assert sample.median == 2.0
    assert median_interval(sample.values) is None
