"""The controls' own control: an honest backend is right, and a wide bar tells nothing."""

import numpy as np
import pytest

from d5test.backends.numpy import Numpy
from d5test.case import Arrays
from d5test.checks import CHECKS, Fault
from d5test.checks.inquiry import Inquiry
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bound, Bounds
from d5test.reference.operators import OPERATORS
from tests.faults.judging import findings, judgements
from tests.faults.score import Local

COMPUTING = ("Conv", "Exp", "Gemm", "LayerNormalization", "MatMul", "ReduceSum", "Softmax")


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_honest_backend_is_right(name: str) -> None:
    found = findings(Local("honest", Numpy()), OPERATORS[name], count=4)
    assert not found, "\n\n".join(fault.message for fault in found.values())


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 1e6), ("float64", 1e10)])
@pytest.mark.parametrize("name", COMPUTING)
def test_a_bar_that_is_too_wide_tells_nothing(
    name: str, dtype: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert telling(name, dtype) >= 5
    tight = Inquiry.forward_bounds

    def wide(self: Inquiry, arithmetic: Arithmetic, arrays: Arrays | None = None) -> Bounds:
        return tuple(
            b and Bound(b.value, factor * (b.bar + np.abs(b.value) * b.storage.u), b.storage)
            for b in tight(self, arithmetic, arrays)
        )

    monkeypatch.setattr(Inquiry, "forward_bounds", wide)
    assert telling(name, dtype) == 0


def telling(name: str, dtype: str) -> int:
    """How many of 15 cases tell something."""
    client, operator = Local("honest", Numpy()), OPERATORS[name]
    found = judgements(client, operator, CHECKS["forward"], dtype, 15)
    return sum(judgement.telling for judgement in found)


def test_a_fault_says_what_is_needed_to_see_it_again() -> None:
    from tests.faults.wrong import Zeros

    operator = OPERATORS["MatMul"]
    with pytest.raises(Fault) as raised:
        list(judgements(Local("zeros", Zeros()), operator, CHECKS["forward"], "float32", 5))
    for words in ("check", "inputs", "worst", "got", "want", "error", "judged", "case"):
        assert f"\n  {words}" in raised.value.message


def test_what_is_wrong_alone_too_is_no_matter_of_the_batch() -> None:
    from tests.faults.wrong import OffsetInDouble

    client, softmax = Local("offset", OffsetInDouble()), OPERATORS["Softmax"]
    assert not list(judgements(client, softmax, CHECKS["batch"], "float64", 5))
    with pytest.raises(Fault) as raised:
        list(judgements(client, softmax, CHECKS["forward"], "float64", 5))
    assert raised.value.kind == "value"
