"""Where all weights are one number, rounding errors agree, and honest results are right."""

from typing import Any

import numpy as np
import pytest

from d5test.case import Tensor
from d5test.client.client import WorkerClient
from d5test.networks import Network, Value
from d5test.networks.executor import Executor
from d5test.networks.graph import Node
from d5test.networks.specialise import specialised
from d5test.networks.whole import Expectation, expected
from d5test.networks.zoo.built import Draft
from d5test.numerics.arithmetic import classes
from d5test.reference.operators import OPERATORS

DEPTH, CHANNELS = 10, 64
X = Tensor((2, 3, 9, 8)).array(0, 0)
(SINGLE,) = classes("float32", flushes=True)


def alike() -> Network:
    """Convolutions, normalisations and Relus, each tensor of weights one number."""
    draft, h, c_in = Draft("alike", x=Value("float32", ("n", 3, 9, 8))), "x", 3
    for i in range(DEPTH):
        w = draft.array(f"w{i}", np.full((CHANNELS, c_in, 3, 3), 0.37 / np.sqrt(9 * c_in)))
        h = draft.add(f"conv{i}", OPERATORS["Conv"](pads=(1, 1, 1, 1)), h, w)
        statistics = {"scale": 1.3, "b": 0.1, "mean": 0.05, "var": 0.7}
        given = [draft.array(f"{k}{i}", np.full(CHANNELS, v)) for k, v in statistics.items()]
        h = draft.add(f"norm{i}", OPERATORS["BatchNormalization"](), h, *given)
        h, c_in = draft.add(f"relu{i}", OPERATORS["Relu"](), h), CHANNELS
    h = draft.add("pool", OPERATORS["GlobalAveragePool"](), h)
    h = draft.add("flat", OPERATORS["Flatten"](), h)
    draft.add("y", OPERATORS["MatMul"](), h, draft.array("w", np.full((CHANNELS, 10), 0.11)))
    return draft.finished("y")


def with_epsilon(node: Node, epsilon: float) -> Node:
    if node.kind != "BatchNormalization":
        return node
    op: Any = node.op
    return Node(node.name, op.with_(epsilon=epsilon), node.inputs, node.outputs)


@pytest.fixture(scope="module")
def expectation() -> Expectation:
    graph = specialised(alike().graph, {"x": X.shape})
    return expected(graph, lambda _: {"x": X}, None, SINGLE)


@pytest.mark.parametrize("backend", ["numpy", "torch", "onnxruntime"])
def test_an_honest_one_is_right(backend: str, expectation: Expectation) -> None:
    pytest.importorskip(backend)
    assert expectation.telling
    with WorkerClient(backend) as client:
        judgement = expectation.judged(Executor(client, alike()).inference({"x": X}))
    assert 0 < judgement.ratio < 0.5


def test_a_wrong_epsilon_is_found(expectation: Expectation) -> None:
    graph = alike().graph
    other = graph.with_(nodes=tuple(with_epsilon(node, 1.3e-5) for node in graph.nodes))
    with WorkerClient("numpy") as client:
        results = Executor(client, Network(other)).inference({"x": X})
    assert expectation.judged(results).ratio > 2
