"""Compressors of gradients: what each claims of its bytes, its errors and what it remembers."""

from collections.abc import Callable

import pytest

from d5test.distributed.compression import (
    faithful,
    independence,
    mean,
    projection,
    special,
    telescoping,
    unbiased,
    wire,
)
from d5test.fixtures.comm import Body


@pytest.mark.collective("faithful")
def test_faithful(each_case: Callable[[Body], None]) -> None:
    each_case(faithful)


@pytest.mark.collective("unbiased")
def test_unbiased(each_case: Callable[[Body], None]) -> None:
    each_case(unbiased)


@pytest.mark.collective("projection")
def test_projection(each_case: Callable[[Body], None]) -> None:
    each_case(projection)


@pytest.mark.collective("wire")
def test_wire(each_case: Callable[[Body], None]) -> None:
    each_case(wire)


@pytest.mark.collective("special")
def test_special(each_case: Callable[[Body], None]) -> None:
    each_case(special)


@pytest.mark.collective("independence")
def test_independence(each_case: Callable[[Body], None]) -> None:
    each_case(independence)


@pytest.mark.collective("telescoping")
def test_telescoping(each_case: Callable[[Body], None]) -> None:
    each_case(telescoping)


@pytest.mark.collective("mean")
def test_mean(each_case: Callable[[Body], None]) -> None:
    each_case(mean)
