"""Bars of derivatives: their values are the derivatives, and they hold every formula in use."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from d5test.case import Case, Operator, Tensor
from d5test.numerics import derivatives
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import Bound, double
from d5test.numerics.derivatives import (
    by_forward,
    by_outputs,
    by_rows,
    slope_bounds,
    tangent_bounds,
    widened,
)
from d5test.numerics.dual import moved_outputs
from d5test.numerics.proof import WrongReference, prove_slopes
from d5test.reference.operators import OPERATORS
from d5test.strategies import cases
from tests.faults.mutants import drawn

(DOUBLE,), (SINGLE,) = classes("float64"), classes("float32")
DIFFERENTIABLE = [
    n
    for n, cls in OPERATORS.items()
    if cls.backward is not Operator.backward and not cls.typed  # what rounds has no derivative
]
FEW = 30
"""Elements of the inputs of a case whose Hessian is computed column by column."""


def direction(case: Case) -> tuple[Any, ...]:
    arrays = case.arrays()
    moving = case.op.vjp(case.upstream(case.op(*arrays)), arrays)
    return tuple(
        Tensor(x.shape, "float64").array(7, i) if i in case.wanted and dx is not None else None
        for i, (x, dx) in enumerate(zip(arrays, moving, strict=True))
    )


@pytest.mark.parametrize("name", sorted(DIFFERENTIABLE))
def test_values_are_those_of_plain_dual_numbers_and_of_both_passes(name: str) -> None:
    judged = 0
    for case in drawn(cases(OPERATORS[name], "float64"), 5):
        with np.errstate(all="ignore"):
            moves, arrays = direction(case), case.arrays()
            grads = case.upstream(case.op(*arrays))
        bounds = tangent_bounds(case.op, arrays, moves, DOUBLE)
        plain = moved_outputs(case.op, double(arrays), moves)
        for bound, t in zip(bounds, plain, strict=True):
            if bound is not None and bound.storage is not None:
                apart = np.abs(bound.value - t) > bound.bar + 1e-13 * np.abs(t)
                assert not (apart & bound.judged).any(), case
                judged += int(bound.judged.sum())
        if sum(x.size for x in arrays if x is not None) <= FEW:
            prove_slopes(case, arrays, grads, moves)
    assert judged


@dataclass(frozen=True, kw_only=True, repr=False)
class Stopped(Operator):
    """y = x^3, whose gradient is right, and stops one of its factors."""

    def forward(self, x: Any) -> Any:
        return x * x * x

    def backward(self, grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy,), (x,) = grads, inputs
        return (3 * x * (np.rint(x * 8) / 8) * dy,)


def test_a_backward_whose_own_derivative_is_wrong_is_its_authors_error() -> None:
    x, t = np.array([0.5, -1.25]), np.array([1.0, 2.0])
    case = Case(Stopped(), (Tensor((2,), "float64", data=(0.5, -1.25)),))
    with pytest.raises(WrongReference, match=r"gradient of input 0 at \[0\] moves by"):
        prove_slopes(case, (x,), (np.ones(2),), (t,))


def inside(bound: Bound | None, got: Any) -> bool:
    assert bound is not None
    return bool((np.abs(got.astype(np.float64) - bound.value) <= bound.bar).all())


def test_formulas_of_a_softmax_that_moves() -> None:
    rng = np.random.default_rng(0)
    softmax = OPERATORS["Softmax"](axis=-1)
    for scale in (0.1, 1, 10):
        x, t, dy = (rng.normal(size=(5, 7)).astype(np.float32) for _ in range(3))
        x *= np.float32(scale)
        e = np.exp(x - x.max(-1, keepdims=True))
        y = e / e.sum(-1, keepdims=True)
        plain = tangent_bounds(softmax, (x,), (t,), SINGLE)
        (bound,) = widened(plain, by_rows(softmax, (x,), (t,), SINGLE))
        moved = y * (t - (y * t).sum(-1, keepdims=True))
        assert inside(bound, moved)
        assert not inside(bound, moved * np.float32(1 + 2e-4))
        assert not inside(bound, y * t)
        data = softmax, (x,), (dy,), (t,), SINGLE
        (slope,) = widened(widened(slope_bounds(*data), by_forward(*data)), by_outputs(*data))
        through = dy - (dy * y).sum(-1, keepdims=True)
        second = moved * through - y * (dy * moved).sum(-1, keepdims=True)
        assert inside(slope, second)
        assert not inside(slope, moved * through)


def test_formulas_that_take_long_are_computed_last_and_only_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed = []
    for name in ("by_others", "by_outputs", "by_forward"):
        original = getattr(derivatives, name)
        monkeypatch.setattr(
            derivatives, name, lambda *data, f=original, n=name: computed.append(n) or f(*data)
        )
    x, dy = np.array([[2.0, 1.0], [0.5, 3.0]]), np.array(1.0)
    formulas = derivatives.by_other_formulas(OPERATORS["Det"](), (x,), (dy,), (x,), DOUBLE)
    assert not computed
    next(formulas)  # Det has one other formula of its gradient
    assert computed == ["by_others"]
    values = [bounds[0].value for bounds in formulas]
    assert computed == ["by_others", "by_outputs", "by_forward"]
    for value in values:  # the second derivative of ad - bc along x is its cofactors
        assert np.allclose(value, [[3.0, -0.5], [-1.0, 2.0]])


def test_either_side_of_a_kink_is_right_and_nothing_beyond() -> None:
    x, t = np.array([0.0, 1.0, -1.0]), np.array([2.0, 3.0, 5.0])
    (bound,) = tangent_bounds(OPERATORS["Relu"](), (x,), (t,), DOUBLE)
    assert bound is not None
    for first in (0.0, 1.0, 2.0):
        assert inside(bound, np.array([first, 3.0, 0.0]))
    for first in (-0.1, 2.1):
        assert not inside(bound, np.array([first, 3.0, 0.0]))
    assert not inside(bound, np.array([1.0, 3.0, 1e-300]))


def test_the_tangent_of_a_maximum_is_that_of_an_input_at_a_tie_any_between() -> None:
    x, t = np.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]]), np.arange(6.0).reshape(2, 3)
    (bound,) = tangent_bounds(OPERATORS["ReduceMax"](), (x, np.array([1])), (t, None), DOUBLE)
    assert bound is not None
    assert bound.value.tolist() == [[1.5], [3.0]]
    assert bound.bar[0, 0] >= 0.5
    assert bound.bar[1, 0] == 0
