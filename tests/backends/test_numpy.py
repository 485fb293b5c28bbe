"""The reference as a backend."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from d5test.client.client import WorkerClient
from d5test.client.messages import Feed
from d5test.reference.operators import OPERATORS
from d5test.reference.steps import STEPS


@pytest.fixture(scope="module")
def client() -> Any:
    with WorkerClient("numpy") as client:
        yield client


def test_every_reference_is_a_row(client: Any) -> None:
    assert set(client.about.rows) == {*OPERATORS, *STEPS}
    assert client.about.flushes == dict.fromkeys(
        ("float64", "float32", "float16", "bfloat16"), False
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_results_have_the_inputs_dtype(client: Any, dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = np.random.default_rng(3).normal(size=(2, 3, 5)).astype(kind)
    dy = np.random.default_rng(5).normal(size=(2, 3, 5)).astype(kind)
    op = OPERATORS["Softmax"](axis=1)
    (result,) = client.run(op, [Feed((x,), (dy,))])
    wide, upstream = x.astype(np.float64), dy.astype(np.float64)
    (y,), (dx,) = op(wide), op.vjp((upstream,), (wide,))
    eps = float(ml_dtypes.finfo(kind).eps)
    for got, want in ((result.outputs[0], y), (result.gradients[0], dx)):
        assert got.dtype == kind
        assert np.max(np.abs(got.astype(np.float64) - want)) < 4 * eps


@pytest.mark.parametrize("layout", ["transposed", "strided", "sliced", "reversed", "offset"])
def test_layouts_hold_the_same_values(client: Any, layout: str) -> None:
    x = np.random.default_rng(7).normal(size=(2, 3, 5)).astype(np.float32)
    assert layout in client.about.layouts
    (result,) = client.run(OPERATORS["Neg"](), [Feed((x,), layouts=(layout,))])
    np.testing.assert_array_equal(result.outputs[0], -x)


def test_a_broadcast_input_has_equal_slices(client: Any) -> None:
    x = np.broadcast_to(np.arange(5, dtype=np.float32), (3, 5)).copy()
    (result,) = client.run(OPERATORS["Neg"](), [Feed((x,), layouts=("broadcast",))])
    np.testing.assert_array_equal(result.outputs[0], -x)


def test_an_input_passed_twice_has_the_sum_of_its_gradients(client: Any) -> None:
    x = np.array([2, -3, 5], np.float64)
    dy = np.array([7, 11, 13], np.float64)
    (result,) = client.run(OPERATORS["Mul"](), [Feed((x, x), (dy,), same_as=(None, 0))])
    np.testing.assert_array_equal(result.gradients[0], 2 * x * dy)
