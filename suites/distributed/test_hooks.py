"""A library's own compression of gradients: `mpirun -n 3 pytest ... --comm=gloo`."""

from collections.abc import Callable

import pytest

from d5test.distributed.hooked import low_rank, narrow
from d5test.fixtures.comm import Body


@pytest.mark.collective("hook_narrow")
def test_narrow(each_case: Callable[[Body], None]) -> None:
    each_case(narrow)


@pytest.mark.collective("hook_low_rank")
def test_low_rank(each_case: Callable[[Body], None]) -> None:
    each_case(low_rank)
