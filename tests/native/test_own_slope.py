"""The gradient of an operator without a reference: what its own forward says of it."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from d5test.case import Case, Operator, Tensor
from d5test.checks.numerical import derivative, measured_noise, numerical_gradient
from d5test.client.messages import Result, RowInfo
from d5test.outcome.fault import Fault


@dataclass(frozen=True, kw_only=True, repr=False)
class Unknown(Operator):
    """No reference."""


class Client:
    """Runs two functions, forward and its alleged gradient."""

    precision = None

    def __init__(self, forward, backward):
        self.forward, self.backward = forward, backward
        row = RowInfo(True, None, "P", ("float64",), "")
        self.about = SimpleNamespace(
            rows={"Unknown": row}, flushes={}, ulps={}, name="mine", version="1", device="cpu",
            mode="eager", row_of=lambda case: row,
        )  # fmt: skip

    def run(self, op, feeds, *, wanted, reuse=False, form="", meanwhile=None):
        return [self._result(feed) for feed in feeds]

    def _result(self, feed):
        (x,) = feed.inputs
        y = self.forward(x)
        found = None if feed.grads is None else (self.backward(feed.grads[0], x),)
        return Result((y,), found, feed.inputs, feed.grads, (y,))


FUNCTIONS = {
    "power": (lambda x: x**3, lambda dy, x: dy * 3 * x**2),
    "linear": (lambda x: 3 * x, lambda dy, x: 3 * dy),
    "tanh": (np.tanh, lambda dy, x: dy * (1 - np.tanh(x) ** 2)),
    "relu": (lambda x: np.maximum(x, 0), lambda dy, x: dy * (x > 0)),
    "abs": (np.abs, lambda dy, x: dy * np.sign(x)),
    "softmax": (
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
        lambda dy, x: (
            (s := np.exp(x) / np.exp(x).sum(-1, keepdims=True))
            * (dy - (dy * s).sum(-1, keepdims=True))
        ),
    ),
    "large": (lambda x: 1e8 * x + x**2, lambda dy, x: dy * (1e8 + 2 * x)),
}


def case(seed: int) -> Case:
    values = [("normal",), ("ties",), ("heavy",), ("uniform",)][seed % 4]
    return Case(Unknown(), (Tensor((3, 7), "float64", values),), seed)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_gradient_is_right_and_mostly_tells(name):
    judgements = [numerical_gradient(Client(*FUNCTIONS[name]), case(k)) for k in range(40)]
    assert max(j.ratio for j in judgements) <= 1
    assert sum(j.telling for j in judgements) >= 20


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_element_that_is_a_thousandth_off_is_found(name):
    forward, backward = FUNCTIONS[name]

    def wrong(dy, x):
        dx = backward(dy, x)
        at = np.argmax(np.abs(dx))
        dx.flat[at] *= 1.001
        return dx

    found = 0
    for k in range(0, 40, 4):
        with pytest.raises(Fault, match="disagrees with the slope of its own forward"):
            numerical_gradient(Client(forward, wrong), case(k))
        found += 1
    assert found == 10


def test_a_gradient_of_another_shape_is_a_fault():
    with pytest.raises(Fault, match="the gradient of input 0 has the wrong shape"):
        numerical_gradient(Client(np.tanh, lambda dy, x: dy.sum(0)), case(0))


@pytest.mark.parametrize("at", np.linspace(-2.5, 2.5, 41))
def test_near_a_kink_the_slope_is_within_the_spread_and_at_it_the_case_is_void(at):
    def p(t):
        return max(t - at, 0.0)

    best, spread, kink = derivative(p(0), p(1), p(-1), p(2), p(-2))
    assert abs((1.0 if at < 0 else 0.0) - best) <= spread + 1e-15
    if at == 0:
        assert kink == 1


def test_a_cubic_is_differentiated_exactly_within_the_spread_of_its_third_derivative():
    best, spread, kink = derivative(0, 5 + 3 + 7, -5 + 3 - 7, 10 + 12 + 56, -10 + 12 - 56)
    assert best == 5  # p(t) = 5 t + 3 t^2 + 7 t^3
    assert spread >= 7
    assert kink < 0


def test_noise_is_measured_though_the_function_is_not_constant():
    noise = np.random.default_rng(3).standard_normal((400, 9))
    measured = [measured_noise(100 + np.arange(9) * 1e-3 + row) for row in noise]
    assert np.sqrt(np.mean(np.square(measured))) == pytest.approx(1, rel=0.1)
