"""Faults of one cause are told once."""

from __future__ import annotations

import pytest

from d5test.case import Case, Tensor
from d5test.outcome.fault import kind_of_fault
from d5test.reference.operators import OPERATORS


@pytest.mark.parametrize(
    ("one", "other"),
    [("() of a scalar", "(2,3) of a scalar"), ("shape (2,)", "shape (5, 7)"), ("[3]", "[]")],
)
def test_shapes_make_no_cause_of_their_own(one: str, other: str) -> None:
    case = Case(OPERATORS["Relu"](), (Tensor((2,)),))
    fault = kind_of_fault("exception")
    causes = {fault("gradient", case, "", {"raised": f"E: {x}\nf(x)"}).cause for x in (one, other)}
    assert len(causes) == 1
