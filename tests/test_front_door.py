"""`d5test.check` and `d5test.judge` in somebody else's test."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import d5test
from d5test.checks import Fault
from d5test.front_door import Untested
from d5test.reference.operators import OPERATORS

Softmax, MatMul, Add = OPERATORS["Softmax"], OPERATORS["MatMul"], OPERATORS["Add"]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def slope(grads: Any, inputs: Any, outputs: Any) -> Any:
    (dy,), (y,) = grads, outputs
    return y * (dy - (dy * y).sum(-1, keepdims=True))


def test_a_right_function_is_right() -> None:
    d5test.check(softmax, like=Softmax(axis=-1))
    d5test.check(softmax, like=Softmax(axis=-1), gradient=slope)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: softmax(x) * x.dtype.type(1 + 1e-5), "value"),
        (lambda x: softmax(x).astype(np.float32), "dtype"),
        (lambda x: np.zeros_like(x), "value"),
        (lambda x: softmax(x)[..., None], "shape"),
        (lambda x: softmax(x)[0, 0, 0, 0, 0, 0], "exception"),
    ],
)
def test_a_wrong_function_is_a_fault(function: Any, kind: str) -> None:
    with pytest.raises(Fault, match="Softmax") as caught:
        d5test.check(function, like=Softmax(axis=-1))
    assert caught.value.kind == kind
    assert isinstance(caught.value, AssertionError)


def test_a_wrong_gradient_is_a_fault() -> None:
    with pytest.raises(Fault) as caught:
        d5test.check(softmax, like=Softmax(axis=-1), gradient=lambda dy, _, y: y[0] * dy[0])
    assert caught.value.kind == "gradient"


def test_an_array_given_twice_has_the_sum_of_both_gradients() -> None:
    def gradient(grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy,), (a, b) = grads, inputs
        return tuple(
            dy.sum(tuple(range(dy.ndim - x.ndim)), keepdims=False).reshape(-1, *x.shape).sum(0)
            if x.shape == dy.shape[dy.ndim - x.ndim :]
            else _unbroadcast(dy, x.shape)
            for x in (a, b)
        )

    d5test.check(np.add, like=Add(), gradient=gradient)


def _unbroadcast(dy: Any, shape: tuple[int, ...]) -> Any:
    dy = dy.sum(tuple(range(dy.ndim - len(shape))))
    axes = tuple(i for i, side in enumerate(shape) if side == 1)
    return dy.sum(axes, keepdims=True).reshape(shape)


def test_attributes_of_a_class_are_drawn() -> None:
    seen = set()

    def along(x: Any, axis: int) -> Any:
        seen.add(axis)
        return np.moveaxis(softmax(np.moveaxis(x, axis, -1)), -1, axis)

    d5test.check(along, like=Softmax)
    assert len(seen) > 1


def test_a_backend_differentiates() -> None:
    torch = pytest.importorskip("torch")
    d5test.check(lambda x: torch.softmax(x, -1), like=Softmax(axis=-1), backend="torch")

    with pytest.raises(Fault) as caught:
        d5test.check(
            lambda x: 2 * torch.softmax(x, -1) - torch.softmax(x, -1).detach(),
            like=Softmax(axis=-1), backend="torch",
        )  # fmt: skip
    assert caught.value.kind == "gradient"


def test_nothing_judged_is_an_error() -> None:
    def refused(x: Any) -> Any:
        raise d5test.Unsupported("not today")

    with pytest.raises(Untested, match="not today"):
        d5test.check(refused, like=Softmax())


def test_mistakes_name_what_was_given() -> None:
    with pytest.raises(ValueError, match="float8"):
        d5test.check(softmax, like=Softmax(), dtypes=("float8",))
    with pytest.raises(ValueError, match="gradient= or backend="):
        d5test.check(softmax, like=Softmax(), gradient=slope, backend="numpy")


def test_judge_one_result() -> None:
    x = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
    y = softmax(x)
    right = d5test.judge(Softmax(), [x], [y])
    assert right.right
    assert right.telling
    assert 0 < right.ratio < 1
    off = y.copy()
    off[2, 1] *= 1.001
    wrong = d5test.judge(Softmax(), [x], [off])
    assert wrong.position == (2, 1)
    assert wrong.ratio > 10
    assert not d5test.judge(Softmax(), [x], [y[:2]]).right
    dy = np.random.default_rng(3).normal(size=(3, 5)).astype(np.float32)
    assert d5test.judge(Softmax(), [x], [slope((dy,), (x,), (y,))], grads=[dy]).right
    assert not d5test.judge(Softmax(), [x], [dy], grads=[dy]).right
    with pytest.raises(ValueError, match="no input"):
        d5test.judge(Softmax(), [np.arange(3)], [np.arange(3)])


def test_importing_d5test_is_light() -> None:
    code = (
        "import sys, d5test; print(sorted(m for m in sys.modules if m.partition('.')[0] in "
        "('numpy', 'torch', 'jax', 'tensorflow', 'hypothesis', 'onnx', 'pytest')))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_public_names_are_there() -> None:
    for name in d5test.__all__:
        assert getattr(d5test, name) is not None
    assert callable(d5test.judge)
    with pytest.raises(AttributeError):
        d5test.nothing  # noqa: B018
