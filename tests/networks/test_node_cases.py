"""ONNX's node cases through a network on the references pass or are refused; none is wrong."""

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from d5test.backends.base import Unsupported
from d5test.client.client import WorkerClient
from d5test.networks.executor import Executor
from d5test.networks.network import Network
from d5test.problems.node_cases import data_sets, differences, node_cases

PASS = 1842
"""How many pass at least: whoever adds an operator raises it."""


def outcome(client: WorkerClient, name: str) -> str:
    """`passes`, `wrong: ...`, or why it is refused."""
    try:
        executor = Executor(client, Network(node_cases()[name].model))
        for inputs, expected in data_sets(name):
            feed = {
                key: x if x is None or isinstance(x, list) else value(x)
                for key, x in inputs.items()
            }
            if difference := differences(name, executor.inference(feed), expected):
                return f"wrong: {difference}"
    except Unsupported as why:
        return str(why).partition(": no such")[0]
    except ValueError as error:  # an error of ours: the models are sound
        return f"wrong: {type(error).__name__}: {error}"
    return "passes"


def value(x: Any) -> Any:
    """The array of a tensor."""
    return numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)


@pytest.mark.nightly
def test_none_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with WorkerClient("numpy") as client:
        outcomes = {name: outcome(client, name) for name in node_cases()}
    wrong = {name: why for name, why in outcomes.items() if why.startswith("wrong")}
    assert not wrong
    counts = Counter(outcomes.values())
    with capsys.disabled():
        print(f"\nof ONNX's {counts.total()} node cases pass {counts['passes']}")
        for why, count in counts.most_common():
            print(f"{count:6} {why}")
    assert counts["passes"] >= PASS
