"""The library in plain form: a NumPy reference, Hypothesis, and a benchmark, all in sight.

The other files of this folder draw shapes, dtypes and layouts of every operator. This one is for
those who read: a backend is asked with NumPy arrays and answers with them, whatever it is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import d5test
from d5test.client.client import BackendClient
from d5test.client.messages import Feed


@dataclass(frozen=True, kw_only=True, repr=False)
class Softmax(d5test.Operator):
    """Normalised exponentials along an axis: the formula, and its derivative."""

    axis: int = -1

    def forward(self, x: Any) -> Any:
        e = np.exp(x - x.max(self.axis, keepdims=True))
        return e / e.sum(self.axis, keepdims=True)

    def backward(self, grads: Any, inputs: Any, outputs: Any) -> Any:
        (dy,), (y,) = grads, outputs
        return y * (dy - (dy * y).sum(self.axis, keepdims=True))


SHAPES = array_shapes(min_dims=1, max_dims=3, max_side=6)
NUMBERS = st.floats(-8, 8, width=32)
MATRICES = arrays(np.float32, SHAPES, elements=NUMBERS)


def require(backend: BackendClient, operator: str, *, gradient: bool = False) -> None:
    """Skip the test if the backend does not have the operator."""
    row = backend.about.rows.get(operator)
    if row is None or "float32" not in row.dtypes:
        pytest.skip(f"{backend.name} has no {operator} in float32")
    if gradient and row.gradient:
        pytest.skip(f"{backend.name} has no gradient of {operator}: {row.gradient}")


@settings(max_examples=20, deadline=None, derandomize=True)
@given(x=MATRICES)
def test_softmax(backend: BackendClient, x: Any) -> None:
    """Each element lies within the error bar that the formula has in float32."""
    require(backend, "Softmax")
    (result,) = backend.run(Softmax(), [Feed((x,))])
    flushes = backend.about.flushes.get("float32", False)
    judgement = d5test.judge(Softmax(), (x,), result.outputs, flushes=flushes)
    assert judgement.right, f"{judgement.got} is not {judgement.want} +- {judgement.bar}"


@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data(), shape=SHAPES)
def test_the_gradient_of_softmax(backend: BackendClient, data: Any, shape: Any) -> None:
    """The framework's own differentiation, under an upstream gradient that is drawn too."""
    require(backend, "Softmax", gradient=True)
    x, dy = (data.draw(arrays(np.float32, shape, elements=NUMBERS)) for _ in range(2))
    (result,) = backend.run(Softmax(), [Feed((x,), (dy,))])
    gradients, flushes = result.gradients or (), backend.about.flushes.get("float32", False)
    judgement = d5test.judge(Softmax(), (x,), gradients, grads=(dy,), flushes=flushes)
    assert judgement.right, f"{judgement.got} is not {judgement.want} +- {judgement.bar}"


def test_how_long_softmax_takes(backend: BackendClient, benchmark: Any) -> None:
    """From NumPy to NumPy, the way to the worker included; `test_time.py` measures inside it."""
    require(backend, "Softmax")
    x = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
    (result,) = benchmark(backend.run, Softmax(), [Feed((x,))])
    assert d5test.judge(Softmax(), (x,), result.outputs).right
