"""Backends that are wrong on purpose are found, each by the check that is meant for it.

And for each check there is a fault that it alone finds: no check could be left out.
"""

from typing import Any, ClassVar

import numpy as np
import pytest

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy
from d5test.checks import CHECKS
from d5test.reference.operators import OPERATORS
from tests.faults import wrong_gradients as gradients
from tests.faults import wrong_processes as processes
from tests.faults.judging import findings
from tests.faults.known import COUNT, EVERY, IN_PROCESS, Finding, found_first, local
from tests.faults.score import Local
from tests.faults.wrong import Arrays, Gradients, Honest, Wrong, floating
from tests.nightly import thinned


@pytest.mark.parametrize("finding", thinned(EVERY, 3), ids=str)
def test_is_found_and_named(finding: Finding) -> None:
    fault = found_first(finding)
    assert fault is not None, f"nothing finds {finding}"
    assert (fault.check, fault.kind) == (finding.check, finding.kind), fault.message
    assert finding.words in fault.message
    assert fault.headline.startswith(f"{finding.operator}(")
    assert repr(fault.case) in fault.message


@pytest.mark.nightly
@pytest.mark.parametrize("finding", [f for f in IN_PROCESS if f.alone], ids=str)
def test_is_found_by_one_check_alone(finding: Finding) -> None:
    found = findings(local(finding), finding.cls, count=COUNT)
    assert {name: str(fault) for name, fault in found.items()}.keys() == {finding.check}


def test_no_check_can_be_left_out() -> None:
    """All but those of full sizes, which ask there what `forward` and `gradient` do."""
    usual = {name for name, check in CHECKS.items() if not check.sizes}
    assert {finding.check for finding in IN_PROCESS if finding.alone} == usual


@pytest.mark.parametrize("backend", [gradients.Cubes, processes.Compiled])
def test_their_honest_siblings_are_right(backend: Any) -> None:
    operator = gradients.Cube if backend is gradients.Cubes else OPERATORS["MatMul"]
    assert not findings(Local("honest", backend()), operator, count=COUNT)


def _padded(y: Any) -> Any:
    return np.pad(y, [(0, 0)] * (y.ndim - 1) + [(0, 1)])


class OneColumnMore(Numpy):
    """MaxPool with a column too many, whose gradient reads beyond the end of dy."""

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs = function(*inputs)
        if any(y.shape != dy.shape for y, dy in zip(outputs, grads, strict=False)):
            return outputs, [np.random.default_rng().normal(size=inputs[i].shape) for i in wanted]
        return super().vjp(function, inputs, grads, wanted)

    rows: ClassVar[Any] = {
        "MaxPool": Row(lambda op, x: _padded(Numpy.rows["MaxPool"].call(op, x)[0]), outputs=1)
    }


def test_a_wrong_shape_is_accused_of_nothing_else() -> None:
    found = findings(Local("column", OneColumnMore()), OPERATORS["MaxPool"], count=COUNT)
    assert found
    assert {fault.kind for fault in found.values()} == {"shape"}


class ByTheSquare(Wrong):
    """A quotient's gradient is divided by the square of the divisor, which leaves the range."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        if len(gradients) < 2:
            return gradients
        da, db = gradients
        with np.errstate(over="ignore"):
            return [da, np.where(np.isinf(np.square(inputs[1])), 0, db).astype(db.dtype)]


def test_a_square_that_leaves_the_range_is_found() -> None:
    client = Local("wrong", ByTheSquare())
    assert findings(client, OPERATORS["Div"], ("gradient",), COUNT)


class FromMinus1e8(Wrong):
    """The largest of numbers and -1e8, with which kernels begin."""

    def forward(self, honest: Honest, *inputs: Any) -> tuple[Any, ...]:
        return honest(*(np.maximum(x, x.dtype.type(-1e8)) if floating(x) else x for x in inputs))


@pytest.mark.parametrize("operator", ["ArgMax", "GlobalMaxPool", "MaxPool", "ReduceMax", "TopK"])
def test_a_maximum_that_begins_too_high_is_found(operator: str) -> None:
    client = Local("wrong", FromMinus1e8())
    assert findings(client, OPERATORS[operator], ("forward",), COUNT)
