"""Allreduce of vectors that are mostly zero: the sum, everywhere, at the price of what is not."""

from collections.abc import Callable

import pytest

from d5test.distributed.sparse import agreement, census, values, volume
from d5test.fixtures.comm import Body


@pytest.mark.collective("sparse_values")
def test_values(each_case: Callable[[Body], None]) -> None:
    each_case(values)


@pytest.mark.collective("sparse_agreement")
def test_agreement(each_case: Callable[[Body], None]) -> None:
    each_case(agreement)


@pytest.mark.collective("sparse_census")
def test_census(each_case: Callable[[Body], None]) -> None:
    each_case(census)


@pytest.mark.collective("sparse_volume")
def test_volume(each_case: Callable[[Body], None]) -> None:
    each_case(volume)
