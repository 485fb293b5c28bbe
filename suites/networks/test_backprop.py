"""The gradient of each parameter lies within the spread of honest references."""

from d5test.fixtures.network import Trials
from d5test.networks.whole import Expectations, expectation
from d5test.networks.zoo.built import Built


def test_backprop(trial: Trials, network: Built, expectations: Expectations) -> None:
    with trial("backprop", network) as tried:
        tried.require_gradients(network.loss)
        executor = tried.executor
        expected = expectation(expectations, network, executor.network, network.loss)
        outputs, gradients = executor.inference_and_backprop(expected.inputs, network.loss)
        named = {f"gradient of {name}": dx for name, dx in gradients.items()}
        tried.judge(expected, {**outputs, **named}, expected.inputs, network.loss)
