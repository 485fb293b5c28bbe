"""A network's edits: each is sound or refused, with the node's name, and changes nothing then."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from d5test.networks import BrokenGraph, Network, UnsafeModel, Value
from d5test.reference.operators import OPERATORS

Gemm, Relu, Add = OPERATORS["Gemm"], OPERATORS["Relu"], OPERATORS["Add"]


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def small() -> Network:
    """x (n, 5) -> fc1 -> relu -> fc2 -> y (n, 3), and z, the sum of h and itself."""
    network = Network.empty("small", x=Value("float32", ("n", 5)))
    network.add_node("fc1", Gemm(), ("x", "w1", "b1"), ("h",), w1=weights(5, 7), b1=weights(7))
    network.add_node("relu", Relu(), ("h",), ("a",))
    network.add_node("fc2", Gemm(), ("a", "w2"), ("y",), w2=weights(7, 3))
    network.add_output("y")
    return network


def test_what_it_is_made_of() -> None:
    network = small()
    assert [node.name for node in network.nodes] == ["fc1", "relu", "fc2"]
    assert network.parameters == ("w1", "b1", "w2")
    assert network.outputs == ("y",)
    assert network.fetch(["b1"])["b1"].tolist() == weights(7).tolist()


REFUSED: dict[str, tuple[Callable[[Network], object], str, str]] = {
    "a tensor that nothing makes": (
        lambda n: n.add_node("more", Relu(), ("nowhere",), ("z",)), "more", "nowhere"),
    "an output that is there": (
        lambda n: n.add_node("more", Relu(), ("h",), ("a",)), "more", "'a'"),
    "a name that is taken": (
        lambda n: n.add_node("relu", Relu(), ("h",), ("z",)), "relu", "name"),
    "a circle": (lambda n: n.add_edge("y", "fc1", 0), "fc1", "fc1, relu, fc2"),
    "shapes that do not fit": (lambda n: n.add_edge("x", "fc2", 0), "fc2", "Dimension"),
    "weights that do not fit": (
        lambda n: n.add_node("more", Gemm(), ("h", "w3"), ("z",), w3=weights(5, 2)), "more", ""),
    "a node whose output is read": (lambda n: n.remove_node("relu"), "relu", "fc2"),
    "a node that makes a result": (lambda n: n.remove_node("fc2"), "fc2", "outputs"),
    "a node that is not there": (lambda n: n.remove_node("fc9"), "fc9", "no such node"),
    "an input that is needed": (lambda n: n.remove_edge("w2", "fc2"), "fc2", "needs its input 1"),
    "an edge that is not there": (lambda n: n.remove_edge("x", "relu"), "relu", "only h"),
    "an array that is not read": (
        lambda n: n.add_node("more", Relu(), ("h",), ("z",), w=weights(2)), "more", "'w'"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_breaking_edit_is_refused_and_changes_nothing(what: str) -> None:
    edit, node, words = REFUSED[what]
    network = small()
    before = network.graph
    with pytest.raises(BrokenGraph) as refusal:
        edit(network)
    assert refusal.value.node == node
    assert node in str(refusal.value)
    assert words in str(refusal.value)
    assert network.graph is before


def test_an_optional_input_can_go_and_come_back() -> None:
    network = small()
    network.remove_edge("b1", "fc1")
    assert network.graph.node("fc1").inputs == ("x", "w1")
    network.add_edge("b1", "fc1", 2)
    assert network.graph.node("fc1").inputs == ("x", "w1", "b1")


def test_a_removed_node_takes_its_own_parameters_along() -> None:
    network = small()
    network.add_output("a")
    network.remove_output("y")
    network.remove_node("fc2")
    assert network.parameters == ("w1", "b1")
    assert network.outputs == ("a",)


def test_nodes_stand_in_an_order_in_which_they_run() -> None:
    network = small()
    network.add_node("first", Relu(), ("x",), ("r",))
    network.add_edge("r", "fc1", 0)
    order = [node.name for node in network.nodes]
    assert order.index("first") < order.index("fc1")


def test_a_parameter_keeps_its_shape_and_dtype() -> None:
    network = small()
    network.feed("b1", np.ones(7, np.float32))
    assert network.fetch(["b1"])["b1"].sum() == 7
    for wrong in (np.ones(6, np.float32), np.ones(7)):
        with pytest.raises(ValueError, match=r"float32 \(7,\)"):
            network.feed("b1", wrong)
    with pytest.raises(KeyError, match="b9"):
        network.feed("b9", np.ones(7, np.float32))


def test_a_copy_is_edited_by_itself() -> None:
    network = small()
    other = network.copy()
    other.remove_edge("b1", "fc1")
    other.feed("w1", np.zeros((5, 7), np.float32))
    assert network.graph.node("fc1").inputs == ("x", "w1", "b1")
    assert network.fetch(["w1"])["w1"].any()


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    network = small()
    network.save(tmp_path / "small.onnx")
    again = Network(tmp_path / "small.onnx")
    assert again.nodes == network.nodes
    assert again.inputs == network.inputs
    assert again.outputs == network.outputs
    for name, values in network.fetch().items():
        assert (again.fetch([name])[name] == values).all()
    onnx.checker.check_model(str(tmp_path / "small.onnx"), full_check=True)


def with_external_data(folder: Path, location: str, **more: int) -> Path:
    """A saved network whose first parameter says that its data lie at `location`."""
    folder.mkdir(exist_ok=True)
    network = small()
    model = network.to_model()
    tensor = next(t for t in model.graph.initializer if t.name == "w1")
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": 0, "length": size, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_in_the_folder_are_read(tmp_path: Path) -> None:
    path = with_external_data(tmp_path, "weights.bin")
    values = weights(5, 7, seed=9)
    (tmp_path / "weights.bin").write_bytes(values.tobytes())
    assert (Network(path).fetch(["w1"])["w1"] == values).all()


@pytest.mark.parametrize("location", ["../secret", "{absolute}", "link", "sub/../../secret"])
def test_external_data_outside_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(140))
    path = with_external_data(tmp_path / "models", location.format(absolute=secret))
    (path.parent / "sub").mkdir()
    (path.parent / "link").symlink_to(secret)
    with pytest.raises(UnsafeModel, match="outside its folder"):
        Network(path)


@pytest.mark.parametrize("more", [{"offset": 4}, {"length": 1 << 40}, {"offset": -8}])
def test_external_data_beyond_the_file_are_refused(tmp_path: Path, more: dict[str, int]) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(140))
    with pytest.raises(UnsafeModel, match=r"beyond the file|non-negative"):
        Network(with_external_data(tmp_path, "weights.bin", **more))


def test_tensors_that_share_a_sparse_file_are_refused(tmp_path: Path) -> None:
    """Forty times 100 MiB that are nowhere on the disk."""
    size = 100 << 20
    with (tmp_path / "sparse.bin").open("wb") as file:
        file.truncate(size)
    model = small().to_model()
    for k in range(40):
        tensor = model.graph.initializer.add(name=f"t{k}", dims=[size], data_type=2)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": "sparse.bin", "length": size}.items():
            tensor.external_data.add(key=key, value=str(value))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnsafeModel, match=f"its tensors want {40 * size} bytes of files that"):
        Network(tmp_path / "model.onnx")


def broken_models() -> dict[str, bytes]:
    model = small().to_model()
    found = {"no bytes": b"", "text": b"a model", "half": model.SerializeToString()[:200]}
    for what, change in {
        "no graph": lambda m: m.ClearField("graph"),
        "a type that is none": lambda m: setattr(m.graph.initializer[0], "data_type", 99),
        "sides below zero": lambda m: m.graph.initializer[0].dims.__setitem__(0, -1),
        "more elements than data": lambda m: m.graph.initializer[0].dims.__setitem__(0, 1 << 40),
        "an operator that is none": lambda m: setattr(m.graph.node[0], "op_type", "Nothing"),
        "no operator sets": lambda m: m.ClearField("opset_import"),
        "an operator set of 2^40": lambda m: setattr(m.opset_import[0], "version", 1 << 40),
        "an output without a maker": lambda m: setattr(m.graph.output[0], "name", "none"),
        "a constant of nothing": lambda m: m.graph.node.add(op_type="Constant", output=["c"]),
    }.items():
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        change(changed)
        found[what] = changed.SerializeToString()
    return found


@pytest.mark.parametrize("what", broken_models())
def test_a_broken_model_is_one_line(what: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(broken_models()[what])
    with pytest.raises(ValueError) as caught:
        Network(path)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_external_data_of_a_model_without_a_folder_are_refused(tmp_path: Path) -> None:
    model = onnx.load(with_external_data(tmp_path, "weights.bin"), load_external_data=False)
    with pytest.raises(UnsafeModel, match="give its path"):
        Network(model)


def test_what_is_no_model_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(ValueError, match="not an ONNX model"):
        Network(tmp_path / "text.onnx")
    with pytest.raises(OSError, match="missing"):
        Network(tmp_path / "missing.onnx")


def test_a_slope_for_each_channel_is_not_taken_for_one_along_the_last_axis() -> None:
    """PRelu until version 6, which onnx's converter hands on as it is."""
    nodes = [onnx.helper.make_node("PRelu", ["x", "slope"], ["y"])]
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3, 3]) for n in "xy")
    slope = onnx.numpy_helper.from_array(np.float32([0.1, 0.2, 0.3]), "slope")
    graph = onnx.helper.make_graph(nodes, "old", [x], [y], [slope])
    for version, reasons in (
        (6, {"PRelu": "PRelu: version 6: a slope is given for each channel"}),
        (7, {}),
    ):
        opset = onnx.helper.make_opsetid("", version)
        model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
        assert Network(model).graph.unmodelled == reasons


@pytest.mark.parametrize("kind", ["Elu", "Constant"])
def test_an_attribute_of_a_function_outside_of_one_is_a_line(tmp_path: Path, kind: str) -> None:
    node = onnx.helper.make_node(kind, ["x"] if kind == "Elu" else [], ["y"], "node")
    node.attribute.add(name="alpha", ref_attr_name="a\nb", type=onnx.AttributeProto.FLOAT)
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    with pytest.raises(BrokenGraph, match="of a function, and stands in none") as refused:
        Network(tmp_path / "m.onnx")
    assert "\n" not in str(refused.value)
