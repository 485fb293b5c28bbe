"""Every collective by every algorithm, and the library's own: the right data in each place."""

from collections.abc import Callable

import pytest

from d5test.distributed.movement import cost, entry, moves, positions, sums
from d5test.fixtures.comm import Body


@pytest.mark.collective("moves")
def test_moves(each_case: Callable[[Body], None]) -> None:
    each_case(moves)


@pytest.mark.collective("sums")
def test_sums(each_case: Callable[[Body], None]) -> None:
    each_case(sums)


@pytest.mark.collective("positions")
def test_positions(each_case: Callable[[Body], None]) -> None:
    each_case(positions)


@pytest.mark.collective("cost")
def test_cost(each_case: Callable[[Body], None]) -> None:
    each_case(cost)


@pytest.mark.collective("entry")
def test_entry(each_case: Callable[[Body], None]) -> None:
    each_case(entry)
