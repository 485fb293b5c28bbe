"""Networks divided among ranks, by tensor, stage and data: as the undivided one, and no slower."""

from collections.abc import Callable

import pytest

from d5test.distributed.division import bubble, division_traffic, gradients
from d5test.fixtures.comm import Body


@pytest.mark.collective("gradients")
def test_gradients(each_case: Callable[[Body], None]) -> None:
    each_case(gradients)


@pytest.mark.collective("bubble")
def test_bubble(each_case: Callable[[Body], None]) -> None:
    each_case(bubble)


@pytest.mark.collective("division_traffic")
def test_traffic(each_case: Callable[[Body], None]) -> None:
    each_case(division_traffic)
