"""A reference whose `backward` contradicts its `forward` is accused itself, and no framework."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import d5test
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy, Reference
from d5test.case import Case, Operator, Tensor
from d5test.checks import CHECKS, Fault
from d5test.numerics.proof import Proof, WrongReference, prove_backward
from d5test.reference.operators import OPERATORS
from d5test.strategies import Draw, inputs
from tests.faults.score import Local


class Right(Operator):
    """y = sin(x) w, whose gradient is right."""

    def forward(self, x: Any, w: Any) -> Any:
        return np.sin(x) * w

    def backward(self, grads: Any, given: Any, outputs: Any) -> Any:
        (dy,), (x, w) = grads, given
        return dy * np.cos(x) * w, dy * np.sin(x)


class WrongSign(Right):
    """The derivative of the cosine in place of the sine's."""

    def backward(self, grads: Any, given: Any, outputs: Any) -> Any:
        (dy,), (x, w) = grads, given
        return -dy * np.cos(x) * w, dy * np.sin(x)


class WrongElement(Right):
    """One element is off by 1e-9 of its value."""

    def backward(self, grads: Any, given: Any, outputs: Any) -> Any:
        (_, w), (dx, dw) = given, super().backward(grads, given, outputs)
        off = np.zeros(w.shape)
        off[1, 1] = 1e-9
        return dx, dw * (1 + off)


class Misshapen(Right):
    """The gradient of w is summed up."""

    def backward(self, grads: Any, given: Any, outputs: Any) -> Any:
        dx, dw = super().backward(grads, given, outputs)
        return dx, dw.sum(-1)


class Kinks(Operator):
    """|x| and the largest element, whose subgradients are others than those of dual numbers."""

    def forward(self, x: Any) -> Any:
        return np.abs(x) + np.max(x, axis=-1, keepdims=True)

    def backward(self, grads: Any, given: Any, outputs: Any) -> Any:
        (dy,), (x,) = grads, given
        steep = np.where(x >= 0, 1.0, -1.0)
        first = np.arange(x.shape[-1]) == np.expand_dims(np.argmax(x, axis=-1), -1)
        return dy * steep + np.where(first, dy.sum(-1, keepdims=True), 0.0)


class Product(Operator):
    """The product of two numbers; its gradient is y / x, which is none where x is zero."""

    def forward(self, x: Any) -> Any:
        return x[..., 0] * x[..., 1]

    def backward(self, grads: Any, given: Any, outputs: Any) -> Any:
        ((dy,), (x,)), (y,) = (grads, given), outputs
        return self.guarded(dy[..., None], x, y[..., None])

    def guarded(self, dy: Any, x: Any, y: Any) -> Any:
        return dy * y / x


class Guarded(Product):
    """Nothing where x is zero, though the other factor is what is due."""

    def guarded(self, dy: Any, x: Any, y: Any) -> Any:
        return np.where(x == 0, 0.0, dy * y / np.where(x == 0, 1.0, x))


@inputs(Right)
@inputs(WrongSign)
def two(d: Draw, op: Operator) -> tuple[Tensor | None, ...]:
    """Two tensors of one shape."""
    sides = d.sides(2)
    return d.tensor(sides, "normal"), d.tensor(sides, "normal")


CASE = (Tensor((2, 3)), Tensor((2, 3)))


def feed(case: Case) -> tuple[Any, Any]:
    arrays = case.arrays()
    return arrays, case.upstream(case.op(*arrays))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_right_reference_is_proved(dtype: str) -> None:
    for seed in range(20):
        case = Case(Right(), tuple(Tensor((2, 3), dtype) for _ in range(2)), seed)
        prove_backward(case, *feed(case))


@pytest.mark.parametrize("values", [("ties",), ("normal",), ("below", 2)])
def test_ties_and_kinks_accuse_nobody(values: tuple[str, ...]) -> None:
    for seed in range(20):
        case = Case(Kinks(), (Tensor((3, 5), "float64", values),), seed)
        prove_backward(case, *feed(case))


def test_at_ties_the_two_sides_do_differ() -> None:
    case = Case(Kinks(), (Tensor((3, 5), "float64", ("below", 2)),))
    proof = Proof(case, *feed(case))
    found = [proof.difference(direction) for direction in proof.directions()]
    assert all(abs(each.forward - each.backward) > 0.01 for each in found)


def test_an_input_given_twice_moves_once() -> None:
    case = Case(Right(), (Tensor((2, 3)), Tensor((2, 3), same_as=0)))
    prove_backward(case, *feed(case))


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (WrongSign(), r"gradient of input 0 at \[\d, \d\] is\n"),
        (WrongElement(), r"gradient of input 1 at \[1, 1\] is\n"),
        (Misshapen(), r"gradient of input 1 has the shape\n    \(2,\) by .*\n    \(2, 3\)"),
    ],
)
def test_a_wrong_one_is_told_where(op: Operator, words: str) -> None:
    case = Case(op, CASE, seed=3)
    with pytest.raises(WrongReference, match=words) as caught:
        prove_backward(case, *feed(case))
    assert repr(case) in str(caught.value)


class Norm(Operator):
    """The length of a row, whose gradient is 0 / 0 where that is zero, as its chain rule's is."""

    def forward(self, x: Any) -> Any:
        return np.sqrt((x * x).sum(-1))

    def backward(self, grads: Any, given: Any, outputs: Any) -> Any:
        (dy,), (x,), (y,) = grads, given, outputs
        return (dy[..., None] * x / y[..., None],)


def test_where_the_chain_rule_has_no_derivative_nothing_is_due() -> None:
    rows = (0.0, 0.0, 1.0, -2.0)
    case = Case(Norm(), (Tensor((2, 2), "float64", data=rows),))
    prove_backward(case, *feed(case))


class Exchanged(OPERATORS["TopK"]):  # type: ignore[name-defined,misc]
    """The gradients of the first two of the sorted elements are exchanged."""

    def backward(self, grads: Any, given: Any, outputs: Any) -> Any:
        (dy, _) = grads
        order = np.arange(dy.shape[self.axis])
        order[:2] = 1, 0
        return super().backward((np.take(dy, order, self.axis), None), given, outputs)


@pytest.mark.parametrize("equal", [2, 3, 6])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_each_of_equal_elements_may_have_the_gradient_of_any(equal: int, k: int) -> None:
    """Where three are equal one of them has a gradient that no step of its own shows."""
    data = (2.0, 3.0, 4.0, 5.0, 6.0)[: 6 - equal] + (1.0,) * equal
    case = Case(
        OPERATORS["TopK"](axis=0), (Tensor((6,), data=data), Tensor((1,), "int64", data=(k,)))
    )
    for seed in range(20):
        prove_backward(replace(case, seed=seed), *feed(replace(case, seed=seed)))
    if equal < 5 and k > 1:
        case = replace(case, op=Exchanged(axis=0))
        with pytest.raises(WrongReference, match="gradient of input 0"):
            prove_backward(case, *feed(case))


@pytest.mark.parametrize(("op", "got"), [(Product(), "nan"), (Guarded(), r"-?0\.0")])
def test_where_bars_say_nothing_the_slopes_on_both_sides_do(op: Operator, got: str) -> None:
    case = Case(op, (Tensor((2, 2), "float64", data=(1.0, 2.0, 0.0, 3.0)),))
    words = rf"gradient of input 0 at \[1, 0\] is\n +{got} by .*\n +between \S+ and \S+ by"
    with pytest.raises(WrongReference, match=words):
        prove_backward(case, *feed(case))


def test_a_gradient_that_is_not_a_number_is_never_what_judges() -> None:
    """No result of a backend would show it: it is proved though nothing differs."""
    case = Case(Product(), (Tensor((2, 2), "float64", data=(1.0, 2.0, 0.0, 3.0)),))
    with pytest.raises(WrongReference, match="nan by Product"):
        CHECKS["gradient"].run(honest(Product, Product), case)


def test_the_values_of_both_sides_are_told() -> None:
    case = Case(WrongSign(), CASE)
    (x, w), (dy,) = feed(case)
    with pytest.raises(WrongReference) as caught:
        prove_backward(case, (x, w), (dy,))
    found = re.search(r"at \[(\d), (\d)\] is\n +(\S+) by .*\n +(\S+), give or", str(caught.value))
    assert found is not None
    at = int(found[1]), int(found[2])
    right = (dy.astype(float) * np.cos(x.astype(float)) * w)[at]
    assert float(found[3]) == pytest.approx(-right, rel=1e-12)
    assert float(found[4]) == pytest.approx(right, rel=1e-12)


def honest(op: type[Operator], own: type[Operator] = Right) -> Local:
    """A backend whose gradients are those of `own`, whatever the reference says."""
    row = {op.__name__: Row(Reference(own)), "Mul": Numpy.rows["Mul"]}
    return Local("honest", type("Honest", (Numpy,), {"rows": row})())


@pytest.mark.parametrize("check", ["gradient", "low_precision"])
@pytest.mark.parametrize("op", [WrongSign, Misshapen])
def test_no_framework_is_accused(check: str, op: type[Operator]) -> None:
    dtype = CHECKS[check].dtypes[0]
    case = Case(op(), tuple(Tensor((2, 3), dtype) for _ in range(2)))
    with pytest.raises(WrongReference, match=f"by {op.__name__}.backward"):
        CHECKS[check].run(honest(op), case)


def test_its_own_forward_acquits_the_framework() -> None:
    case = Case(WrongSign(), tuple(Tensor((2, 3), "float64") for _ in range(2)))
    assert CHECKS["numerical_gradient"].run(honest(WrongSign), case).right


def test_a_wrong_gradient_under_a_right_reference_is_the_framework_s() -> None:
    row = {"Right": Row(Reference(WrongSign)), "Mul": Numpy.rows["Mul"]}
    wrong = Local("wrong", type("Wrong", (Numpy,), {"rows": row})())
    with pytest.raises(Fault, match="the gradient is wrong"):
        CHECKS["gradient"].run(wrong, Case(Right(), CASE))


def test_the_front_door_accuses_the_reference() -> None:
    def function(x: Any, w: Any) -> Any:
        return np.sin(x) * w

    def gradient(grads: Any, given: Any, outputs: Any) -> Any:
        return Right().backward(grads, given, outputs)

    d5test.check(function, like=Right(), gradient=gradient)
    with pytest.raises(WrongReference, match=r"WrongSign\(\): the reference contradicts itself"):
        d5test.check(function, like=WrongSign(), gradient=gradient)


def test_normalisations_that_cancel_are_proved() -> None:
    """The formula of the forward loses digits that `backward` keeps."""
    tensors = (
        Tensor((3, 2, 5), "float64", ("offset",)),
        *[Tensor((2,), "float64", ("heavy",))] * 2,
    )
    case = Case(OPERATORS["GroupNormalization"](num_groups=1), tensors, seed=550)
    prove_backward(case, *feed(case))
