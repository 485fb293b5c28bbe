"""Training in plain form: an update rule beside the framework's own, and a network that learns."""

from typing import Any

import numpy as np
import pytest

from d5test.client.client import BackendClient
from d5test.client.messages import Feed
from d5test.networks.zoo.small import mlp
from d5test.reference.optimizers import GradientDescent, Momentum
from d5test.reference.steps import as_step
from d5test.training.session import Session
from d5test.training.step import variant


def require(backend: BackendClient, rule: str) -> None:
    """Skip the test if the backend does not train."""
    if rule not in backend.about.rows:
        pytest.skip(f"{backend.name} has no optimizer {rule}")


def test_the_heavy_ball(backend: BackendClient) -> None:
    """v = v / 2 + g, w = w - v / 4: six steps down the parabola w^2 / 2, whose gradient is w.

    All numbers are small binary fractions, so float32 rounds nothing and every bit counts.
    """
    require(backend, "Momentum")
    rule = variant(backend, Momentum(lr=0.25, momentum=0.5))
    w, v = np.array([1, -2, 4], np.float32), np.zeros(3, np.float32)
    want, velocity = np.array([1.0, -2.0, 4.0]), np.zeros(3)
    for t in range(1, 7):
        (result,) = backend.run(as_step(rule, t), [Feed((w, w, v))])
        w, v = result.outputs
        velocity = velocity / 2 + want
        want = want - velocity / 4
        np.testing.assert_array_equal(w, want)


def test_a_network_learns(backend: BackendClient) -> None:
    """Two clouds of points are told apart: the loss falls, and every point is right at the end."""
    require(backend, "GradientDescent")
    draw = np.random.default_rng(5)
    labels = np.arange(16) % 2
    x = (draw.normal(size=(16, 3, 1, 1)) + 8 * labels[:, None, None, None]).astype(np.float32)
    batch: dict[str, Any] = {"x": x - 4, "labels": labels}
    session = Session(backend, mlp((3, 2)), GradientDescent(lr=0.125))
    try:
        first, *_, last = session.train([batch] * 30)
    finally:
        session.close()
    assert last.loss < first.loss
    assert last.right == 16
