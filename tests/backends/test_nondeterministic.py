"""A framework that documents that it does not repeat itself is not accused of it."""

from itertools import count
from typing import Any, ClassVar

import numpy as np
import pytest

from d5test.backends.base import Row, Table, Unsupported
from d5test.backends.numpy import Numpy
from d5test.case import Case, Tensor
from d5test.checks.repetition import determinism
from d5test.outcome.fault import Fault
from d5test.reference.operators import OPERATORS
from tests.faults.score import Local

CALLS = count()


def drifting(op: Any, x: Any) -> Any:
    return np.abs(x) + next(CALLS)


class Drifting(Numpy):
    rows: ClassVar[Any] = Table({"Abs": Row(drifting, outputs=1, gradient="none is asked")})


class Documented(Drifting):
    def nondeterministic(self, operator: str, what: str) -> str:
        return "what is added by atomic additions" if what == "outputs" else ""


CASE = Case(OPERATORS["Abs"](), (Tensor((3,)),))


def test_a_difference_is_a_fault_where_the_framework_documents_none() -> None:
    with pytest.raises(Fault, match="the same call gives other outputs"):
        determinism(Local("drifting", Drifting()), CASE)
    with pytest.raises(Unsupported, match="what is added by atomic additions"):
        determinism(Local("documented", Documented()), CASE)
