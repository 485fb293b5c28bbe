"""A network in plain form: built node by node, run on a backend, and compared with NumPy."""

from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.client.client import BackendClient
from d5test.networks import Network
from d5test.networks.executor import Executor
from d5test.networks.zoo.small import mlp

U = np.finfo(np.float32).eps / 2
"""Unit roundoff of float32."""


def batch() -> dict[str, Any]:
    """Seven samples of 2 x 2 x 3 numbers, of five classes."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(7, 2, 2, 3)).astype(np.float32)
    return {"x": x, "labels": draw.integers(0, 5, 7)}


def gradients_of(
    backend: BackendClient, network: Network, inputs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The outputs, and the gradients of the loss, by name."""
    outputs, gradients = Executor(backend, network).inference_and_backprop(inputs, "loss")
    return dict(outputs), dict(gradients)


def test_scores_of_a_linear_network(backend: BackendClient) -> None:
    """y = x W + b, within the bound of a sum of products: (k + 1) u times that of magnitudes.

    Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.5.
    """
    network, given = mlp((12, 5)), batch()
    w, b = (x.astype(np.float64) for x in network.fetch(["scores_w", "scores_b"]).values())
    x = given["x"].reshape(7, 12).astype(np.float64)
    want, magnitude = x @ w + b, np.abs(x) @ np.abs(w) + np.abs(b)
    got = Executor(backend, network).inference(given)["scores"]
    assert got.shape == want.shape
    assert np.all(np.abs(got - want) <= (12 + 1) * U * magnitude)


def test_gradients_of_an_edited_network(backend: BackendClient) -> None:
    """With its weights doubled and its inputs halved a network has the same scores, exactly.

    The gradient of the weights is halved: powers of two round nothing.
    """
    network, given = mlp((12, 5)), batch()
    edited = network.copy()
    edited.feed("scores_w", 2 * network.fetch(["scores_w"])["scores_w"])
    half = {**given, "x": given["x"] / 2}
    try:
        outputs, gradients = gradients_of(backend, network, given)
        others, halved = gradients_of(backend, edited, half)
    except Unsupported as why:
        pytest.skip(str(why))
    np.testing.assert_array_equal(others["scores"], outputs["scores"])
    np.testing.assert_array_equal(halved["scores_w"], gradients["scores_w"] / 2)
    np.testing.assert_array_equal(halved["scores_b"], gradients["scores_b"])
    assert np.any(gradients["scores_w"])
