"""How a check asks: several calls in one request, and bars that are computed beside them."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Row, Unsupported
from d5test.backends.numpy import Numpy
from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.checks.arguments import laid_out, places
from d5test.checks.inquiry import Inquiry
from d5test.checks.upstream import UPSTREAM
from d5test.client.client import WorkerClient
from d5test.client.registry import Spec
from d5test.numerics.arithmetic import Arithmetic
from d5test.outcome.fault import Fault
from d5test.reference.operators import OPERATORS
from tests.faults.score import Local
from tests.faults.wrong import Wrong
from tests.faults.wrong_gradients import NoGradients, Transposed

CASE = Case(OPERATORS["Tanh"](), (Tensor((2, 3)),))


def asking(tanh: Callable[[Any, Any], Any]) -> Inquiry:
    """The case, put to a backend whose Tanh is this function."""
    rows = {"Tanh": Row(tanh), "Mul": Numpy.rows["Mul"]}
    return Inquiry("forward", Local("custom", type("Custom", (Numpy,), {"rows": rows})()), CASE)


def feeds(inquiry: Inquiry) -> list[Any]:
    return [inquiry.feed((x * inquiry.arrays[0],)) for x in np.float32([1, 2, 3])]


def test_calls_that_are_asked_together_are_answered_one_by_one() -> None:
    inquiry = asking(lambda op, x: np.tanh(x))
    calls = feeds(inquiry)
    inquiry.ask_together(*calls)
    for feed in reversed(calls):
        (result,) = inquiry.ask(feed)
        assert np.array_equal(result.outputs[0], np.tanh(feed.inputs[0]))


def test_an_answer_is_good_for_one_ask() -> None:
    """A check that asks again, in a fresh worker say, wants to know it anew."""
    count = iter(range(100))
    inquiry = asking(lambda op, x: np.full_like(x, next(count)))
    feed = inquiry.feed()
    inquiry.ask_together(feed)
    first, again = (inquiry.ask(feed)[0].outputs[0].flat[0] for _ in range(2))
    assert first < again


@pytest.mark.parametrize("kind", [ValueError, Unsupported])
def test_an_exception_of_one_call_is_reported_for_that_call(kind: type[Exception]) -> None:
    def tanh(op: Any, x: Any) -> Any:
        if x.flat[0] == second.inputs[0].flat[0]:
            raise kind("not of these")
        return np.tanh(x)

    inquiry = asking(tanh)
    first, second, third = feeds(inquiry)
    inquiry.ask_together(first, second, third)
    inquiry.ask(first)
    with pytest.raises(Unsupported if kind is Unsupported else Fault) as caught:
        inquiry.ask(second)
    if isinstance(caught.value, Fault):
        assert caught.value.evidence.feeds == (second,)
    inquiry.ask(third)


def test_what_calls_raise_only_together_is_a_fault_of_all_of_them() -> None:
    seen: list[Any] = []

    def tanh(op: Any, x: Any) -> Any:
        seen.append(x)
        if len(seen) == 2:
            raise ValueError("the cache is full")
        return np.tanh(x)

    inquiry = asking(tanh)
    calls = feeds(inquiry)
    with pytest.raises(Fault) as caught:
        inquiry.ask_together(*calls)
    assert caught.value.kind == "exception"
    assert caught.value.evidence.feeds == tuple(calls)


def test_every_other_case_has_one_place_alone_in_another_layout() -> None:
    case = Case(OPERATORS["MatMul"](), (Tensor((2, 3)), Tensor((3, 4))))
    got = [places(replace(case, seed=seed), UPSTREAM) for seed in range(8)]
    every = (0, 1, UPSTREAM)
    assert got == [every, (0,), every, (1,), every, (UPSTREAM,), every, (0,)]
    assert laid_out(case, "strided", (1,)) == ("contiguous", "strided")


def test_a_case_without_inputs_to_lay_out_has_no_place() -> None:
    assert places(Case(CASE.op, (), seed=1)) == ()


WAITING = """
import time
from pathlib import Path

import numpy as np

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy


def tanh(op, x):
    while not Path("{path}").exists():
        time.sleep(0.01)
    return np.tanh(x)


class Waiting(Numpy):
    rows = {{"Tanh": Row(tanh), "Mul": Numpy.rows["Mul"]}}
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Any:
    """A backend in a worker, whose Tanh waits for a file."""
    file = tmp_path / "waiting_for_a_file.py"
    file.write_text(WAITING.format(path=tmp_path / "go on"))
    with WorkerClient(Spec("waiting", f"{file}:Waiting"), timeout=20) as client:
        yield client


def test_bars_are_computed_while_the_backend_computes(waiting: Any, tmp_path: Path) -> None:
    inquiry = Inquiry("forward", waiting, CASE)

    def ahead(arithmetic: Arithmetic) -> None:
        assert arithmetic is inquiry.classes()[0]
        os.mknod(tmp_path / "go on")

    (result,) = inquiry.ask(inquiry.feed(), ahead=[ahead])
    assert np.allclose(result.outputs[0], np.tanh(inquiry.arrays[0]))


def test_what_bars_raise_is_raised_where_they_are_needed(waiting: Any, tmp_path: Path) -> None:
    (tmp_path / "go on").touch()
    inquiry = Inquiry("forward", waiting, CASE)

    def wrong(arithmetic: Arithmetic) -> Any:
        raise ZeroDivisionError("in the reference")

    feed = inquiry.feed()
    (result,) = inquiry.ask(feed, ahead=[wrong])
    with pytest.raises(ZeroDivisionError):
        inquiry.judged(wrong, result.outputs, (feed,))
    assert inquiry.ask(feed)  # of the same worker


def test_bars_of_the_same_arrays_are_computed_once() -> None:
    inquiry = asking(lambda op, x: np.tanh(x))
    (tightest,) = inquiry.classes()
    once, again = inquiry.forward_bounds(tightest), inquiry.forward_bounds(tightest)
    assert once[0] is again[0]
    other = inquiry.forward_bounds(tightest, (2 * inquiry.arrays[0],))
    assert not np.array_equal(once[0].value, other[0].value)


PRODUCT = Case(OPERATORS["MatMul"](), (Tensor((3, 3)), Tensor((3, 3))))


def fault_of(check: str, backend: Any, case: Case) -> Fault:
    with pytest.raises(Fault) as caught:
        CHECKS[check].run(Local("mine", backend), case)
    return caught.value


class NoneAlone(Wrong):
    """Returns a gradient only to those who ask for all."""

    def backward(self, gradients: Any, inputs: Any, grads: Any) -> Any:
        return gradients if len(gradients) > 1 else [None]


def test_a_gradient_that_another_call_returns_is_not_to_be_declared_as_absent() -> None:
    fault = fault_of("gradient", NoneAlone(), replace(PRODUCT, alone=1))
    assert fault.details["returned"] == (
        "None for the gradient of input 1, which means zero; a call that asks for every gradient "
        "returns a number"
    )
    fault = fault_of("gradient", NoGradients(), replace(PRODUCT, alone=1))
    assert "stopped=(1,) in the row says" in fault.details["returned"]


def test_a_gradient_that_is_transposed_has_the_right_numbers() -> None:
    fault = fault_of("gradient", Transposed(), PRODUCT)
    assert "the numbers that are due, in another order" in fault.details["right"]


def test_upstream_gradients_in_other_layouts_are_telling() -> None:
    judgement = CHECKS["layout_gradient"].run(Local("numpy", Wrong()), PRODUCT)
    assert judgement.telling


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype(np.int32).astype(np.int64),
        lambda x: x.clip(-(2**31), 2**31 - 1),
    ],
)
@pytest.mark.parametrize("name", ["Where", "Add", "Mul", "ReduceSum", "TopK"])
def test_integers_that_are_converted_to_a_narrower_dtype_are_called_so(
    name: str, convert: Callable[[Any], Any]
) -> None:
    """As OpenVINO's plugin for CPUs, whose int64 is int32: one cause of many faults."""
    honest = Numpy.rows[name]

    def narrowed(op: Any, *inputs: Any) -> Any:
        taken = [convert(x) if x is not None and x.dtype == np.int64 else x for x in inputs]
        made = honest.call(op, *taken)
        results = made if isinstance(made, tuple) else (made,)
        return tuple(y.astype(np.int32).astype(y.dtype) for y in results)

    x = Tensor((4,), "int64", data=(3000000019, -3000000007, 3000000037, 5))
    y = replace(x, data=(-2600000003, 2600000011, 7, 2600000017))
    inputs = {
        "Where": (Tensor((4,), "bool", data=(True, False, True, True)), x, y),
        "ReduceSum": (x,),
        "TopK": (x, Tensor((1,), "int64", data=(3,))),
    }
    rows = {name: replace(honest, call=narrowed)}
    backend = type("Custom", (Numpy,), {"rows": rows})()
    fault = fault_of("integers", backend, Case(OPERATORS[name](), inputs.get(name, (x, y))))
    assert fault.cause == "integers converted to int32"
    assert fault.headline.startswith(f"{name}(): the result is wrong: integers are converted to")
    assert fault.details["right"].endswith("bits: right if inputs are converted to int32 first")


def test_one_truth_value_of_converted_integers_is_no_evidence() -> None:
    def less(op: Any, *inputs: Any) -> Any:
        return np.less(*(x.astype(np.int32) for x in inputs))

    rows = {"Less": replace(Numpy.rows["Less"], call=less)}
    x, y = (Tensor((1,), "int64", data=(value,)) for value in (3000000019, 5))
    backend = type("Custom", (Numpy,), {"rows": rows})()
    fault = fault_of("integers", backend, Case(OPERATORS["Less"](), (x, y)))
    assert fault.headline.startswith("Less(): the result is wrong on ")
    assert fault.details["integers"] == "the result is right if they are converted to int32"


def test_so_they_are_called_of_an_operator_that_has_no_other_numbers() -> None:
    def inverted(op: Any, x: Any) -> Any:
        return np.invert(x.astype(np.int32)).astype(x.dtype)

    rows = {"BitwiseNot": replace(Numpy.rows["BitwiseNot"], call=inverted)}
    x = Tensor((2,), "int64", data=(3000000019, -3443009869511011978))
    backend = type("Custom", (Numpy,), {"rows": rows})()
    fault = fault_of("forward", backend, Case(OPERATORS["BitwiseNot"](), (x,)))
    assert fault.cause == "integers converted to int32"
