"""A network on a backend: what goes in and out, where its parameters are, what is told of it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.client.client import WorkerClient
from d5test.networks import Network, Value
from d5test.networks.executor import Event, Executor
from d5test.networks.zoo import NETWORKS
from d5test.reference.operators import OPERATORS

BUILT = NETWORKS["mlp"]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with WorkerClient("numpy") as client:
        yield client


def test_outputs_are_the_references(client: Any) -> None:
    network, inputs = BUILT.network(), BUILT.inputs()
    x = inputs["x"].reshape(7, 192).astype(np.float64)
    for i in (1, 2):
        w, b = (network.fetch([f"fc{i}_{part}"])[f"fc{i}_{part}"] for part in "wb")
        x = np.maximum(x @ w + b, 0)
    w, b = (network.fetch([f"scores_{part}"])[f"scores_{part}"] for part in "wb")
    outputs = Executor(client, network).inference(inputs)
    assert list(outputs) == ["scores", "loss"]
    assert np.abs(outputs["scores"] - (x @ w + b)).max() < np.finfo(np.float32).eps * 192


def test_a_step_along_the_gradient_lowers_the_loss(client: Any) -> None:
    executor, inputs = Executor(client, BUILT.network()), BUILT.inputs()
    before, gradients = executor.inference_and_backprop(inputs, "loss")
    assert set(gradients) == set(executor.network.parameters)
    stepped = {
        name: w - np.float32(0.01) * gradients[name] for name, w in executor.fetch().items()
    }
    executor.feed(**stepped)
    after = executor.inference(inputs)
    slope = sum(float((dw.astype(np.float64) ** 2).sum()) for dw in gradients.values())
    gained = float(before["loss"] - after["loss"])
    assert 0.005 * slope < gained < 0.01 * slope
    for name, w in executor.fetch().items():
        assert (w == stepped[name]).all()


def test_upstream_gradients_may_be_given(client: Any) -> None:
    executor, inputs = Executor(client, BUILT.network()), BUILT.inputs()
    ones = {"loss": np.ones((), np.float32)}
    _, by_name = executor.inference_and_backprop(inputs, "loss", ["fc1_w", "x"])
    _, by_gradient = executor.inference_and_backprop(inputs, ones, ["fc1_w", "x"])
    assert by_name["x"].shape == (7, 3, 8, 8)
    for name, dw in by_name.items():
        assert dw.any()
        assert (dw == by_gradient[name]).all()


def test_each_set_of_shapes_is_made_ready_once(client: Any) -> None:
    executor, inputs = Executor(client, BUILT.network()), BUILT.inputs()
    half = {name: x[:3] for name, x in inputs.items()}
    whole, part = executor.inference(inputs), executor.inference(half)
    assert part["scores"].shape == (3, 10)
    assert np.abs(part["scores"] - whole["scores"][:3]).max() < np.finfo(np.float32).eps * 192
    assert executor.graph(inputs) is executor.graph(inputs)


def test_wrong_inputs_are_refused(client: Any) -> None:
    executor, inputs = Executor(client, BUILT.network()), BUILT.inputs()
    with pytest.raises(ValueError, match="'x' is float32, given float64"):
        executor.inference({**inputs, "x": inputs["x"].astype(np.float64)})
    with pytest.raises(ValueError, match="not fed: labels"):
        executor.inference({"x": inputs["x"]})
    with pytest.raises(ValueError, match="no output is called 'los', only scores, loss"):
        executor.inference_and_backprop(inputs, "los")


def test_events_are_told(client: Any) -> None:
    told: list[Event] = []
    executor = Executor(client, BUILT.network(), [told.append])
    executor.inference(BUILT.inputs())
    executor.inference_and_backprop(BUILT.inputs(), "loss")
    nodes = [node.name for node in executor.network.nodes]
    assert [(e.what, e.name) for e in told] == [
        ("inference", "mlp"), ("inference", "mlp"), *(("operator", name) for name in nodes),
        ("backprop", "mlp"), ("backprop", "mlp"),
    ]  # fmt: skip
    assert [e.seconds is None for e in told[:2]] == [True, False]
    assert all(e.seconds for e in told if e.what == "operator")


def test_time_is_profiled_node_by_node(client: Any) -> None:
    executor = Executor(client, BUILT.network())
    profile = executor.profile(BUILT.inputs(), 3)
    assert list(profile.nodes) == [node.name for node in executor.network.nodes]
    assert {len(seconds) for seconds in profile.nodes.values()} == {3} == {len(profile.whole)}
    assert all(profile.medians.values())
    sums = np.sum(list(profile.nodes.values()), axis=0)
    assert profile.overhead == np.median(1 - sums / profile.whole)


def test_a_node_that_raises_is_named(client: Any) -> None:
    network = Network.empty("broken", x=Value("float32", (2, 3)), at=Value("int64", (1,)))
    network.add_node("take", OPERATORS["Gather"](), ("x", "at"), ("y",))
    network.add_output("y")
    executor = Executor(client, network)
    with pytest.raises(Exception, match="IndexError in node take"):
        executor.inference({"x": np.zeros((2, 3), np.float32), "at": np.array([5])})


def test_a_lost_worker_is_found_again() -> None:
    with WorkerClient("numpy") as client:
        executor, inputs = Executor(client, BUILT.network()), BUILT.inputs()
        before = executor.inference(inputs)
        client._process.end_worker()
        with pytest.raises(Exception, match="restarted, perhaps"):
            executor.inference(inputs)
        executor.unload()
        assert (executor.inference(inputs)["scores"] == before["scores"]).all()


def test_a_runtime_reads_the_model_and_only_infers() -> None:
    pytest.importorskip("onnxruntime")
    with WorkerClient("onnxruntime") as client:
        executor, inputs = Executor(client, BUILT.network()), BUILT.inputs()
        scores = executor.inference(inputs)["scores"]
        assert len(executor.nodes(inputs)) == len(executor.network.nodes)
        with pytest.raises(Unsupported, match="only infers"):
            executor.inference_and_backprop(inputs, "loss")
        bias = executor.fetch(["scores_b"])["scores_b"]
        executor.feed(scores_b=bias + np.float32(1))
        moved = executor.inference(inputs)["scores"] - scores
        assert np.abs(moved - 1).max() < np.finfo(np.float32).eps * 192
