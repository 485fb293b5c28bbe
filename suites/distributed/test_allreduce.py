"""Allreduce by every algorithm, and by the library itself: the sum, everywhere, at its price."""

from collections.abc import Callable

import pytest

from d5test.distributed.checks import agreement, census, values, volume
from d5test.fixtures.comm import Body


@pytest.mark.collective("values")
def test_values(each_case: Callable[[Body], None]) -> None:
    each_case(values)


@pytest.mark.collective("agreement")
def test_agreement(each_case: Callable[[Body], None]) -> None:
    each_case(agreement)


@pytest.mark.collective("census")
def test_census(each_case: Callable[[Body], None]) -> None:
    each_case(census)


@pytest.mark.collective("volume")
def test_volume(each_case: Callable[[Body], None]) -> None:
    each_case(volume)
