"""State that earlier calls left is told from a property that is broken."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.client.client import WorkerClient
from d5test.client.messages import Feed, Raised
from d5test.outcome.tally import LeftToOthers
from d5test.reference.operators import OPERATORS
from d5test.reproducer import prove
from tests.reproducer.strangers import run

BACKEND = """
import numpy as np

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy

STATE = {}


def matmul(op, a, b):
    try:
        y = a @ b
    except ValueError:
        STATE["broken"] = True
        raise
    return y * y.dtype.type(2) if STATE.get("broken") else y


def transposed(op, a, b):
    y = a @ b
    return y if a.flags.c_contiguous else y * y.dtype.type(2)


class Mine(Numpy):
    rows = {"MatMul": Row(matmul, gradient="none")}


class Misread(Numpy):
    rows = {"MatMul": Row(transposed, gradient="none")}


def leaky(op, x):
    alpha = STATE.setdefault(x.shape, op.alpha)
    return np.where(x < 0, x.dtype.type(alpha) * x, x)


def summed(op, x, axes):
    first = STATE.setdefault(x.shape, tuple(axes))
    return x.sum(first, keepdims=bool(op.keepdims))


def convolved(op, x, w):
    kept = STATE.setdefault((x.shape, w.shape, sum(op.pads)), op)
    return Numpy.rows["Conv"].call(kept, x, w)


def away(op, x):
    return (np.trunc(2 * x) - np.trunc(x)).astype(x.dtype)


class Away(Numpy):
    rows = {"Round": Row(away, gradient="none")}


class Kept(Numpy):
    rows = {
        "Conv": Row(convolved, gradient="none"),
        "LeakyRelu": Row(leaky, gradient="none"),
        "ReduceSum": Row(summed, gradient="none"),
    }
"""
MATMUL = OPERATORS["MatMul"]()
CASE = Case(MATMUL, (Tensor((2, 3)), Tensor((3, 4))), seed=5)


@pytest.fixture
def client(request: Any, tmp_path: Path) -> Iterator[WorkerClient]:
    path = tmp_path / "mine.py"
    path.write_text(BACKEND)
    with WorkerClient(f"{path}:{request.param}", timeout=20) as client:
        yield client


@pytest.mark.parametrize("client", ["Mine"], indirect=True)
def test_what_an_exception_left_is_no_fault_of_layouts(client: WorkerClient) -> None:
    CHECKS["layout"].run(client, CASE)
    with pytest.raises(Raised):
        client.run(MATMUL, [Feed((np.ones((2, 3)), np.ones((2, 3))))])
    with pytest.raises(Fault) as caught:
        CHECKS["layout"].run(client, CASE)
    assert caught.value.kind == "value"
    assert "the result is wrong after earlier calls" in caught.value.headline
    assert "mismatch" in caught.value.before.raised
    CHECKS["layout"].run(client, CASE)  # its worker is a fresh one


@pytest.mark.parametrize("client", ["Misread"], indirect=True)
def test_a_property_is_accused_as_before(client: WorkerClient) -> None:
    with pytest.raises(Fault) as caught:
        CHECKS["layout"].run(client, CASE)
    assert caught.value.kind == "layout"


@pytest.mark.parametrize("client", ["Away"], indirect=True)
def test_halves_that_are_rounded_to_another_number_are_not_kept_from_an_earlier_call(
    client: WorkerClient,
) -> None:
    """Their results are those of other arguments, and right as soon as these change a little."""
    halves = Tensor((2,), values=("often", 0.5, -0.5, -2.0))
    kinds = set()
    for seed in range(30):
        with suppress(LeftToOthers):
            try:
                CHECKS["no_caching"].run(client, Case(OPERATORS["Round"](), (halves,), seed))
            except Fault as fault:
                kinds.add(fault.kind)
    assert kinds == {"value"}


AXES = Tensor((1,), "int64", data=(1,))
KEPT = {
    "Conv": (
        (Tensor((1, 1, 4)), Tensor((1, 1, 2))),
        "only after a call with other attributes, which the file makes first",
    ),
    "LeakyRelu": (
        (Tensor((2, 3)),),
        "only after a call with other attributes, which the file makes first",
    ),
    "ReduceSum": (
        (Tensor((2, 2)), AXES),
        "only after earlier calls of the operator, of which the file makes the last 1 first",
    ),
}
"""What is kept of the first call on a shape, and how its fault is seen again."""
ATTRIBUTES: dict[str, Any] = {"Conv": {"kernel_shape": (2,), "pads": (0, 1)}}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("client", ["Kept"], indirect=True)
def test_attributes_that_are_kept_by_shape_are_met(
    client: WorkerClient, name: str, tmp_path: Path
) -> None:
    inputs, again = KEPT[name]
    case = Case(OPERATORS[name](**ATTRIBUTES.get(name, {})), inputs, seed=5)
    with pytest.raises(Fault, match="the result is wrong after earlier calls") as caught:
        CHECKS["no_caching"].run(client, case)
    path, seen = prove(caught.value, client, tmp_path)
    assert seen == again
    assert run(path).returncode == 1
