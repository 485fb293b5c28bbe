"""The outputs of each network lie within the spread of honest references."""

from d5test.fixtures.network import Trials
from d5test.networks.whole import Expectations, expectation
from d5test.networks.zoo.built import Built


def test_inference(trial: Trials, network: Built, expectations: Expectations) -> None:
    with trial("inference", network) as tried:
        executor = tried.executor
        expected = expectation(expectations, network, executor.network, None)
        tried.judge(expected, executor.inference(expected.inputs), expected.inputs, None)
