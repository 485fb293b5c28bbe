"""Networks that are wrong on purpose are found, and the guilty node is named."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d5test.client.client import InProcessClient
from d5test.networks import Network, Value
from d5test.networks.executor import Executor
from d5test.networks.nodes import judged_nodes
from d5test.networks.specialise import specialised
from d5test.networks.whole import Expectation, expected
from d5test.networks.zoo import NETWORKS
from d5test.numerics.arithmetic import classes
from d5test.numerics.judgement import Judgement
from d5test.reference.operators import OPERATORS
from d5test.reproducer import write
from tests.nightly import at_night

WRONG = Path(__file__).with_name("wrong.py")
(SINGLE,) = classes("float32")
SQUARE = Value("float32", ("n", 8, 8))


@pytest.fixture(scope="module")
def expectations() -> Callable[[str], Expectation]:
    known: dict[str, Expectation] = {}

    def of(name: str) -> Expectation:
        if name not in known:
            built = NETWORKS[name]
            shapes = {key: x.shape for key, x in built.inputs().items()}
            graph = specialised(built.network().graph, shapes)
            known[name] = expected(graph, built.inputs, built.loss, SINGLE)
        return known[name]

    return of


def executor(backend: str, network: Network) -> Executor:
    return Executor(InProcessClient(backend), network)


def judged(running: Executor, expectation: Expectation) -> Judgement:
    assert expectation.loss is not None
    outputs, found = running.inference_and_backprop(expectation.inputs, expectation.loss)
    return expectation.judged({**outputs, **{f"gradient of {k}": v for k, v in found.items()}})


@pytest.mark.parametrize("name", ["mlp", "lenet5", "gpt2", at_night("resnet44")])
def test_an_honest_network_is_right(name: str, expectations: Any) -> None:
    built = NETWORKS[name]
    running = executor("numpy", built.network())
    judgement = judged(running, expectations(name))
    assert judgement.telling
    assert 0 < judgement.ratio < 0.7
    found = judged_nodes(running, expectations(name).inputs, built.loss)
    assert not found.faults
    assert not found.reasons
    assert found.judged == 2 * len(built.network().nodes)


def test_a_wrong_backward_in_one_node_is_found_and_named(
    tmp_path: Path, expectations: Any
) -> None:
    built, expectation = NETWORKS["resnet44"], expectations("resnet44")
    running = executor(f"{WRONG}:OneBackward", built.network())
    assert judged(running, expectation).ratio > 1
    found = judged_nodes(running, expectation.inputs, built.loss)
    assert list(found.faults) == ["stage2_0_a_conv"]
    fault = found.faults["stage2_0_a_conv"]
    assert fault.kind == "gradient"
    assert "stage2_0_a_conv of resnet44" in fault.message
    assert "Conv(" in fault.message.partition("\n")[0]
    path = write(fault, running.client.about, tmp_path)
    assert path.name.startswith("Conv-nodes-float32-")
    assert path.stat().st_size < 1_000_000
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr


def test_a_wrong_epsilon_is_found_and_its_nodes_named(expectations: Any) -> None:
    built, expectation = NETWORKS["gpt2"], expectations("gpt2")
    running = executor(f"{WRONG}:OtherEpsilon", built.network())
    assert judged(running, expectation).ratio > 1
    faults = judged_nodes(running, expectation.inputs, built.loss).faults
    assert "0_attention_norm" in faults  # where the variance is smallest, epsilon counts most
    assert {fault.case.op.name for fault in faults.values()} == {"LayerNormalization"}


def test_a_fault_between_the_nodes_is_no_nodes(expectations: Any) -> None:
    built, expectation = NETWORKS["gpt2"], expectations("gpt2")
    running = executor(f"{WRONG}:LostReader", built.network())
    assert judged(running, expectation).ratio > 1
    assert not judged_nodes(running, expectation.inputs, built.loss).faults


def without_an_activation(network: Network) -> None:
    network.add_edge("fc2", "scores", 0)


def with_another_parameter(network: Network) -> None:
    (weights,) = network.fetch(["fc1_w"]).values()
    weights[5, 7] *= 1.01
    network.feed("fc1_w", weights)


EDITS = {
    "a missing node": without_an_activation,
    "another parameter": with_another_parameter,
}


@pytest.mark.parametrize("what", EDITS)
def test_another_network_is_not_taken_for_this_one(what: str, expectations: Any) -> None:
    network = NETWORKS["mlp"].network()
    EDITS[what](network)
    assert judged(executor("numpy", network), expectations("mlp")).ratio > 1


def test_swapped_inputs_are_found() -> None:
    network = Network.empty("difference", x=SQUARE, z=SQUARE)
    network.add_node("sub", OPERATORS["Sub"](), ("x", "z"), ("y",))
    network.add_node("loss", OPERATORS["ReduceSum"](keepdims=0), ("y",), ("loss",))
    network.add_output("y")
    network.add_output("loss")
    built = NETWORKS["mlp"]
    x = built.inputs()["x"][:, 0]
    inputs = {"x": x, "z": x[::-1].copy()}
    graph = specialised(network.graph, {name: a.shape for name, a in inputs.items()})
    expectation = expected(graph, lambda _: inputs, "loss", SINGLE)
    assert judged(executor("numpy", network), expectation).right
    network.remove_output("loss")
    network.remove_node("loss")
    network.add_edge("z", "sub", 0)
    network.add_edge("x", "sub", 1)
    network.add_node("loss", OPERATORS["ReduceSum"](keepdims=0), ("y",), ("loss",))
    network.add_output("loss")
    assert judged(executor("numpy", network), expectation).ratio > 1


def test_the_suite_names_the_node_and_writes_its_reproducer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "suites/networks/test_backprop.py", "-q",
               f"--backend={WRONG}:OneBackward", "--network=resnet44", "--in-process",
               f"--reproducers={tmp_path}", "-p", "no:cacheprovider"]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 1
    assert "guilty: stage2_0_a_conv\n" in ran.stdout
    assert "gradient of stage2_0_a_conv_w" in ran.stdout
    (path,) = tmp_path.glob("Conv-nodes-*.py")
    assert re.search(r"reproducer: .*" + re.escape(path.name), ran.stdout)
