"""A graph for given shapes: shape arithmetic is constant, what does nothing is gone."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from d5test.client.client import InProcessClient
from d5test.networks import Network
from d5test.networks.executor import Executor
from d5test.networks.nodes import judged_nodes
from d5test.networks.specialise import runnable, specialised
from d5test.problems.node_cases import data_sets, differences, node_cases


def network(nodes: list[onnx.NodeProto], output: str, *arrays: tuple[str, object]) -> Network:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3, 5))
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays]
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return Network(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def exported_view() -> Network:
    """x.view(x.shape[0], -1), as exporters write it."""
    return network(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n"]),
            helper.make_node("Unsqueeze", ["n", "axis"], ["ns"]),
            helper.make_node("Concat", ["ns", "rest"], ["shape"], axis=0),
            helper.make_node("Reshape", ["x", "shape"], ["y"]),
        ],
        "y", ("zero", 0), ("axis", [0]), ("rest", [-1]),
    )  # fmt: skip


def test_shape_arithmetic_becomes_a_constant() -> None:
    graph = specialised(exported_view().graph, {"x": (2, 3, 5)})
    assert [node.kind for node in graph.nodes] == ["Reshape"]
    assert graph.constants["shape"].tolist() == [2, -1]
    assert set(graph.constants) == {"shape"}


def test_a_side_with_a_name_is_the_same_everywhere() -> None:
    graph = exported_view().graph
    both = graph.with_(inputs={**graph.inputs, "z": graph.inputs["x"]})
    specialised(both, {"x": (2, 3, 5), "z": (2, 3, 5)})
    with pytest.raises(ValueError, match=r"'z' is \('n', 3, 5\), given \(4, 3, 5\)"):
        specialised(both, {"x": (2, 3, 5), "z": (4, 3, 5)})


WRONG = {
    "not fed: x": {},
    "'x' is ('n', 3, 5), given (2, 3)": {"x": (2, 3)},
    "'x' is ('n', 3, 5), given (2, 3, 6)": {"x": (2, 3, 6)},
    "no input is called z": {"x": (2, 3, 5), "z": ()},
}


@pytest.mark.parametrize("words", WRONG)
def test_other_shapes_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        specialised(exported_view().graph, WRONG[words])


def test_what_rounds_is_left_to_the_backend() -> None:
    made = network(
        [helper.make_node("Mul", ["a", "a"], ["b"]), helper.make_node("Add", ["x", "b"], ["y"])],
        "y", ("a", np.float32([0.1, 0.2, 0.3, 0.4, 0.5])),
    )  # fmt: skip
    graph = specialised(made.graph, {"x": (2, 3, 5)})
    assert [node.kind for node in graph.nodes] == ["Mul", "Add"]


CHAINS = {
    "in the middle": (["Relu x a", "Identity a b", "Neg b y"], "Relu x a, Neg a y"),
    "at the end": (["Relu x a", "Identity a y"], "Relu x y"),
    "twice at the end": (["Relu x a", "Dropout a b", "Identity b y"], "Relu x y"),
    "read and at the end": (["Relu x a", "Identity a y", "Neg a unread"], "Relu x y"),
    "at the beginning": (["Dropout x a", "Relu a y"], "Relu x y"),
}


@pytest.mark.parametrize("where", CHAINS)
def test_what_does_nothing_is_left_out(where: str) -> None:
    written, want = CHAINS[where]
    nodes = [helper.make_node(kind, [x], [y]) for kind, x, y in map(str.split, written)]
    graph = specialised(network(nodes, "y").graph, {"x": (2, 3, 5)})
    found = ", ".join(f"{n.kind} {n.inputs[0]} {n.outputs[0]}" for n in graph.nodes)
    assert found == want
    assert graph.outputs == ("y",)


def test_a_cast_to_the_dtype_that_is_there_is_left_out() -> None:
    types = {"b": TensorProto.FLOAT, "c": TensorProto.DOUBLE, "y": TensorProto.FLOAT}
    casts = [helper.make_node("Cast", [x], [y], to=types[y]) for x, y in ("ab", "bc", "cy")]
    made = network([helper.make_node("Relu", ["x"], ["a"]), *casts], "y")
    graph = specialised(made.graph, {"x": (2, 3, 5)})
    assert [(node.kind, *node.inputs) for node in graph.nodes] == [
        ("Relu", "x"), ("Cast", "a"), ("Cast", "c"),
    ]  # fmt: skip


def test_a_dropout_that_trains_is_not_left_out() -> None:
    nodes = [helper.make_node("Dropout", ["x", "ratio", "train"], ["y"])]
    made = network(nodes, "y", ("ratio", np.float32(0.5)), ("train", True))
    (node,) = specialised(made.graph, {"x": (2, 3, 5)}).nodes
    assert node.kind == "Dropout"


def test_a_node_without_inputs_does_not_hand_anything_on() -> None:
    nodes = [helper.make_node("SequenceEmpty", [], ["y"])]
    (node,) = specialised(network(nodes, "y").graph, {"x": (2, 3, 5)}).nodes
    assert node.kind == "SequenceEmpty"


def by_rank(rank: int) -> Network:
    """x w1 where x has so many axes, else x w2, as exporters write it; in a loop neither is."""
    branches = {
        name: helper.make_graph(
            [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Neg", ["p"], ["q"])],
            name, [], [helper.make_tensor_value_info("q", TensorProto.FLOAT, ("n", 3, 5))],
            [numpy_helper.from_array(np.full((3, 5), w, np.float32), "w")],
        )
        for name, w in (("then_branch", 2), ("else_branch", 3))
    }  # fmt: skip
    return network(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Size", ["s"], ["rank"]),
            helper.make_node("Equal", ["rank", "wanted"], ["is"]),
            helper.make_node("If", ["is"], ["z"], "which", **branches),
            helper.make_node("Relu", ["z"], ["y"]),
        ],
        "y", ("wanted", np.int64(rank)),
    )  # fmt: skip


@pytest.mark.parametrize(("rank", "w"), [(3, 2), (2, 3)])
def test_of_an_if_that_shapes_decide_the_branch_is_left(rank: int, w: int) -> None:
    graph = specialised(by_rank(rank).graph, {"x": (2, 3, 5)})
    assert [(n.name, n.kind, *n.inputs) for n in graph.nodes] == [
        ("which/Mul_p", "Mul", "x", "which/w"), ("which/Neg_q", "Neg", "which/p"),
        ("Relu_y", "Relu", "which/q"),
    ]  # fmt: skip
    assert {name: x.tolist() for name, x in graph.parameters.items()} == {"which/w": [[w] * 5] * 3}
    runnable(graph)


def test_an_if_that_a_constant_decides_is_a_branch_too() -> None:
    made = by_rank(3).to_model()
    del made.graph.node[:3]
    made.graph.initializer.append(numpy_helper.from_array(np.array(False), "is"))
    graph = specialised(Network(made).graph, {"x": (2, 3, 5)})
    assert [n.kind for n in graph.nodes] == ["Mul", "Neg", "Relu"]
    assert graph.parameters["which/w"].max() == 3


@pytest.mark.parametrize("case", ["test_flexattention_score_mod", "test_flexattention_gqa"])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_what_onnx_defines_by_others_is_those(case: str, backend: str) -> None:
    pytest.importorskip(backend)
    made = Network(node_cases()[case].model)
    assert set(made.graph.unmodelled) == {"FlexAttention"}
    ((inputs, expected),) = data_sets(case)
    executor = Executor(InProcessClient(backend), made)
    assert not executor.graph(inputs).unmodelled
    assert not differences(case, executor.inference(inputs), expected)
    assert not judged_nodes(executor, inputs, None).faults


def test_a_vector_of_one_is_a_number_where_one_is_wanted() -> None:
    """ONNX's function AffineGrid hands such to Range, behind an If that shapes decide."""
    case = "test_affine_grid_2d_expanded"
    ((inputs, expected),) = data_sets(case)
    executor = Executor(InProcessClient("numpy"), Network(node_cases()[case].model))
    kinds = {node.kind for node in executor.graph(inputs).nodes}
    assert "Range" in kinds
    assert "If" not in kinds
    assert not differences(case, executor.inference(inputs), expected)
