"""Control flow and sequences: what runs is what ONNX says, on any backend; what is malformed or
endless is refused in one line.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from d5test.backends.base import Unsupported
from d5test.client.client import InProcessClient, WorkerClient
from d5test.networks import BrokenGraph, Network
from d5test.networks import call as module
from d5test.networks.executor import KEPT, Executor
from d5test.networks.nodes import PASSES, judged_nodes
from d5test.networks.specialise import specialised
from d5test.networks.whole import arithmetic, expected

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node
WRONG = Path(__file__).with_name("wrong.py")


@pytest.fixture(scope="module", params=["numpy", "torch"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "torch":
        pytest.importorskip("torch")
    with WorkerClient(request.param) as client:
        yield client


def info(name: str, kind: int = FLOAT, shape: Any = ()) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def body(
    nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], **arrays: Any
) -> onnx.GraphProto:
    initializers = [numpy_helper.from_array(np.asarray(x), name) for name, x in arrays.items()]
    return helper.make_graph(nodes, "body", inputs, outputs, initializers)


def model(
    nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], opset: int = 21,
    **arrays: Any,
) -> onnx.ModelProto:  # fmt: skip
    return helper.make_model(
        body(nodes, inputs, outputs, **arrays),
        opset_imports=[helper.make_opsetid("", opset)], ir_version=10,
    )  # fmt: skip


def run(client: Any, given: onnx.ModelProto, **inputs: Any) -> list[Any]:
    return list(Executor(client, Network(given)).inference(inputs).values())


def x_of(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def branch(kind: str, *names: str) -> onnx.GraphProto:
    return body([node(kind, list(names), ["made"])], [], [info("made", FLOAT, ["m"])])


def nested() -> onnx.ModelProto:
    """x + w, x - w or x w, by two conditions; w is a parameter of the outer graph."""
    inner = node("If", ["q"], ["chosen"], then_branch=branch("Sub", "x", "w"),
                 else_branch=branch("Mul", "x", "w"))  # fmt: skip
    return model(
        [node("If", ["p"], ["y"], then_branch=branch("Add", "x", "w"),
              else_branch=body([inner], [], [info("chosen", FLOAT, ["m"])]))],
        [info("p", BOOL), info("q", BOOL), info("x", FLOAT, [3])], [info("y", FLOAT, ["m"])],
        w=np.float32([2, 3, 5]),
    )  # fmt: skip


def test_a_branch_in_a_branch_sees_the_outer_names(client: Any) -> None:
    x, w = np.float32([0.5, 1, 2]), np.float32([2, 3, 5])
    for p, q, want in ((1, 0, x + w), (0, 1, x - w), (0, 0, x * w)):
        (y,) = run(client, nested(), p=np.array(bool(p)), q=np.array(bool(q)), x=x)
        assert y.tolist() == want.tolist()


def test_a_fed_parameter_reaches_the_branches(client: Any) -> None:
    executor = Executor(client, Network(nested()))
    inputs = {"p": np.array(True), "q": np.array(True), "x": np.float32([0, 0, 0])}
    assert executor.inference(inputs)["y"].tolist() == [2, 3, 5]
    executor.feed(w=np.float32([7, 11, 13]))
    assert executor.fetch(["w"])["w"].tolist() == [7, 11, 13]
    assert executor.inference(inputs)["y"].tolist() == [7, 11, 13]
    executor.unload()
    assert executor.inference(inputs)["y"].tolist() == [7, 11, 13]


def test_gradients_are_refused_in_one_line(client: Any) -> None:
    executor = Executor(client, Network(nested()))
    inputs = {"p": np.array(True), "q": np.array(True), "x": np.float32([0, 0, 0])}
    for refused in (
        lambda: executor.inference_and_backprop(inputs, "y"),
        lambda: executor.start_timing([inputs]),
        lambda: executor.profile(inputs),
    ):
        with pytest.raises(Unsupported, match="control flow and sequences, for results alone"):
            refused()


def test_the_nodes_of_bodies_are_judged_and_a_wrong_one_is_named() -> None:
    inputs = {"x": np.float32([0.5, 1]), "n": np.array(9)}
    for backend, faults, count in (
        ("numpy", set(), 0), (f"{WRONG}:LargeSums", {"Add_v", "Add_sum"}, 3),
    ):  # fmt: skip
        executor = Executor(InProcessClient(backend), Network(doubling(1e9)))
        found = judged_nodes(executor, inputs, None)
        assert set(found.faults) == faults
        assert not found.reasons
        assert found.judged == 4 * PASSES - count


@pytest.mark.parametrize("backend", ["numpy", "torch", "onnxruntime"])
def test_a_loop_is_judged_as_a_whole(backend: str) -> None:
    pytest.importorskip(backend)
    network, inputs = Network(scanning()), {"s0": x_of(3), "a": x_of(5, 3), "b": x_of(5, 3) * 2}
    graph = specialised(network.graph, {name: x.shape for name, x in inputs.items()})
    wanted = expected(graph, lambda _: inputs, None, arithmetic(network))
    assert wanted.telling
    with WorkerClient(backend) as client:
        outputs = Executor(client, network).inference(inputs)
    assert wanted.judged(outputs).ratio < 0.5
    for name, y in outputs.items():
        assert wanted.judged({**outputs, name: np.flip(y, 0)}).ratio > 1
    with pytest.raises(Unsupported, match="for results alone"):
        expected(graph, lambda _: inputs, "s_last", arithmetic(network))


def doubling(limit: float) -> onnx.ModelProto:
    """v = 2 v while the sum of x and v is below a limit; all v collected."""
    step = body(
        [node("Add", ["v_in", "v_in"], ["v"]), node("Add", ["x", "v"], ["sum"]),
         node("ReduceMax", ["sum"], ["most"], keepdims=0),
         node("Less", ["most", "limit"], ["go"])],
        [info("i", INT), info("go_in", BOOL), info("v_in", FLOAT, [2])],
        [info("go", BOOL), info("v", FLOAT, [2]), info("sum", FLOAT, [2])],
    )  # fmt: skip
    return model(
        [node("Loop", ["n", "", "one"], ["v_last", "sums"], body=step)],
        [info("n", INT), info("x", FLOAT, [2])],
        [info("v_last", FLOAT, [2]), info("sums", FLOAT, ["k", 2])],
        limit=np.float32(limit), one=np.float32([1, 1]),
    )  # fmt: skip


def test_a_loop_ends_by_its_count_or_its_condition(client: Any) -> None:
    x = np.float32([0.5, 1])
    for count, limit, steps in ((3, 1e9, 3), (50, 20, 5), (0, 1e9, 0), (-1, 1e9, 0)):
        last, sums = run(client, doubling(limit), n=np.array(count), x=x)
        assert last.tolist() == [2**steps] * 2
        assert sums.shape == (steps, 2)
        assert sums.dtype == np.float32
        assert sums.tolist() == [[0.5 + 2**k, 1 + 2**k] for k in range(1, steps + 1)]


def growing() -> onnx.ModelProto:
    """x joined with itself at each step: its shape is another one each time."""
    step = body(
        [node("Concat", ["v_in", "x"], ["v"], axis=0), node("Identity", ["go_in"], ["go"])],
        [info("i", INT), info("go_in", BOOL), info("v_in", FLOAT, ["k", 3])],
        [info("go", BOOL), info("v", FLOAT, ["m", 3])],
    )
    return model(
        [node("Loop", ["n", "", "x"], ["y"], body=step)],
        [info("n", INT), info("x", FLOAT, [2, 3])], [info("y", FLOAT, ["r", 3])],
    )  # fmt: skip


def test_shapes_change_over_iterations_and_few_stay_loaded(client: Any) -> None:
    x, executor = x_of(2, 3), Executor(client, Network(growing()))
    (y,) = executor.inference({"n": np.array(KEPT + 7), "x": x}).values()
    assert y.tolist() == np.tile(x, (KEPT + 8, 1)).tolist()
    (piece,) = executor._pieces
    assert len(piece._executors) == KEPT
    executor.unload()
    assert not piece._executors


def endless() -> onnx.ModelProto:
    """A loop without an end."""
    return model(
        [node("Loop", ["", "", "x"], ["y"], body=body(
            [node("Identity", ["v_in"], ["v"]), node("Identity", ["go_in"], ["go"])],
            [info("i", INT), info("go_in", BOOL), info("v_in", FLOAT, [2])],
            [info("go", BOOL), info("v", FLOAT, [2])]))],
        [info("x", FLOAT, [2])], [info("y", FLOAT, [2])],
    )  # fmt: skip


def test_a_loop_without_an_end_is_refused(client: Any) -> None:
    with pytest.raises(Unsupported, match=r"node 'Loop_y': more than 10000 iterations"):
        run(client, endless(), x=x_of(2))


def test_a_loop_that_fills_the_memory_is_refused(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES", 100 * 24)
    inputs = {"n": np.array(1 << 62), "x": x_of(2, 3)}
    with pytest.raises(Unsupported, match="holds more than 2400 bytes"):
        run(client, growing(), **inputs)
    monkeypatch.setattr(module, "BYTES", 800)
    with pytest.raises(Unsupported, match="holds more than 800 bytes"):
        run(client, doubling(1e38), n=np.array(1 << 62), x=x_of(2))


SCANS = {
    "plain": {},
    "another axis": {"scan_input_axes": [1, 0]},
    "backwards": {"scan_input_directions": [1, 0]},
    "backwards and along the last axis": {
        "scan_input_axes": [-1, 0], "scan_input_directions": [0, 1],
        "scan_output_axes": [-1, 1], "scan_output_directions": [1, 0]},
}  # fmt: skip


def scanning(**attributes: Any) -> onnx.ModelProto:
    """s = s + a w at each row a; s - b at each row b of another input, and -s."""
    step = body(
        [node("Mul", ["a_i", "w"], ["aw"]), node("Add", ["s_in", "aw"], ["s"]),
         node("Sub", ["s", "b_i"], ["d"]), node("Neg", ["s"], ["e"])],
        [info("s_in", FLOAT, [3]), info("a_i", FLOAT, [3]), info("b_i", FLOAT, [3])],
        [info("s", FLOAT, [3]), info("d", FLOAT, [3]), info("e", FLOAT, [3])],
    )  # fmt: skip
    return model(
        [node("Scan", ["s0", "a", "b"], ["s_last", "ds", "es"], body=step,
              num_scan_inputs=2, **attributes)],
        [info("s0", FLOAT, [3]), info("a", FLOAT, ["i", "j"]), info("b", FLOAT, ["k", "l"])],
        [info("s_last", FLOAT, [3]), info("ds", FLOAT, ["m", "n"]), info("es", FLOAT, ["o", "p"])],
        w=np.float32([2, 3, 5]),
    )  # fmt: skip


@pytest.mark.parametrize("how", SCANS)
def test_scan_has_axes_and_directions(client: Any, how: str) -> None:
    attributes = SCANS[how]
    s, a, b, w = x_of(3), x_of(5, 3), x_of(5, 3) * 2, np.float32([2, 3, 5])
    axes = attributes.get("scan_input_axes", [0, 0])
    at_a, at_b = (np.moveaxis(x, 0, axis) for x, axis in zip((a, b), axes, strict=True))
    last, d, e = run(client, scanning(**attributes), s0=s, a=at_a, b=at_b)
    back = attributes.get("scan_input_directions", [0, 0])
    state, ds, es = s, [], []
    for i in range(5):
        state = state + a[-1 - i if back[0] else i] * w
        ds.append(state - b[-1 - i if back[1] else i])
        es.append(-state)
    out_back = attributes.get("scan_output_directions", [0, 0])
    out_axes = attributes.get("scan_output_axes", [0, 0])
    assert last.tolist() == state.tolist()
    for got, column, reverse, axis in zip((d, e), (ds, es), out_back, out_axes, strict=True):
        want = np.stack(column[:: -1 if reverse else 1], axis)
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize(
    "attributes",
    [{"scan_input_axes": [0]}, {"scan_input_axes": [0, 2]}, {"scan_output_axes": [0, 1, 0]},
     {"scan_output_axes": [0, -3]}, {"scan_input_directions": [1]}],
    ids=str,
)  # fmt: skip
def test_axes_that_do_not_fit_are_one_line(client: Any, attributes: dict[str, Any]) -> None:
    with pytest.raises(BrokenGraph, match="Scan_s_last") as caught:
        run(client, scanning(**attributes), s0=x_of(3), a=x_of(5, 3), b=x_of(5, 3))
    assert "\n" not in str(caught.value)


def test_scan_of_version_8_has_a_batch_of_lengths(client: Any) -> None:
    step = body([node("Add", ["s_in", "a"], ["s"]), node("Identity", ["s"], ["e"])],
                [info("s_in", FLOAT, [2]), info("a", FLOAT, [2])],
                [info("s", FLOAT, [2]), info("e", FLOAT, [2])])  # fmt: skip
    given = model(
        [node("Scan", ["lengths", "s0", "x"], ["y", "z"], body=step, num_scan_inputs=1,
              directions=[1])],
        [info("lengths", INT, [3]), info("s0", FLOAT, [3, 2]), info("x", FLOAT, [3, 5, 2])],
        [info("y", FLOAT, [3, 2]), info("z", FLOAT, [3, 5, 2])], opset=8,
    )  # fmt: skip
    s, x, lengths = np.zeros((3, 2), np.float32), x_of(3, 5, 2), [5, 2, 0]
    y, z = run(client, given, lengths=np.array(lengths), s0=s, x=x)
    for i, n in enumerate(lengths):
        want = np.cumsum(x[i, :n][::-1], 0, dtype=np.float32)
        assert z[i, :n].tolist() == want.tolist()
        assert not z[i, n:].any()
        assert y[i].tolist() == (want[-1] if n else s[i]).tolist()


def sequence(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def test_a_sequence_is_an_output_and_an_input(client: Any) -> None:
    given = model(
        [node("SequenceAt", ["xs", "one"], ["x1"]), node("Relu", ["x1"], ["r"]),
         node("SequenceErase", ["xs", "zero"], ["rest"]),
         node("SequenceInsert", ["rest", "r", "minus"], ["ys"]),
         node("SequenceLength", ["ys"], ["n"]), node("Add", ["n", "one"], ["more"])],
        [sequence("xs")], [sequence("ys"), info("more", INT)],
        one=np.int64(1), zero=np.int64(0), minus=np.int64(-1),
    )  # fmt: skip
    xs = [x_of(2), x_of(3), x_of(2, 2)]
    ys, more = run(client, given, xs=xs)
    assert [y.tolist() for y in ys] == [y.tolist() for y in (xs[1], np.maximum(xs[1], 0), xs[2])]
    assert more == 4
    with pytest.raises(ValueError, match="'xs' is sequence of tensor, given ndarray"):
        run(client, given, xs=xs[0])
    with pytest.raises(ValueError, match="'xs' is float32, given float64"):
        run(client, given, xs=[xs[0], xs[1].astype(np.float64)])
    with pytest.raises(ValueError, match="not fed: xs"):
        run(client, given)


def test_a_tensor_is_split_and_joined_again(client: Any) -> None:
    x = x_of(2, 7)
    for split in (np.int64(3), np.int64([2, 0, 5]), None):
        names = ["x", "split"] if split is not None else ["x"]
        given = model(
            [node("SplitToSequence", names, ["xs"], axis=-1),
             node("SequenceMap", ["xs"], ["ys"], body=body(
                 [node("Neg", ["e"], ["f"])], [info("e", FLOAT, None)], [info("f", FLOAT, None)])),
             node("ConcatFromSequence", ["ys"], ["y"], axis=1)],
            [info("x", FLOAT, [2, 7])], [info("y", FLOAT, ["a", "b"])],
            **({} if split is None else {"split": split}),
        )  # fmt: skip
        for value in (*given.graph.node[1].attribute[0].g.input,
                      *given.graph.node[1].attribute[0].g.output):  # fmt: skip
            value.type.tensor_type.shape.dim.add()
            value.type.tensor_type.shape.dim.add()
        assert run(client, given, x=x)[0].tolist() == (-x).tolist()


def changed(given: onnx.ModelProto, change: Callable[[onnx.GraphProto], Any]) -> onnx.ModelProto:
    """The model with the body of its first node changed."""
    change(given.graph.node[0].attribute[0].g)
    return given


def second_ring(graph: onnx.GraphProto) -> None:
    graph.node[0].input[0] = "ring"
    graph.node.add(op_type="Neg", input=[graph.node[0].output[0]], output=["ring"])


MALFORMED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "an output that nobody makes": (
        lambda: changed(endless(), lambda g: setattr(g.output[1], "name", "none")), "none"),
    "an output too few": (lambda: changed(endless(), lambda g: g.output.pop()), "Loop_y"),
    "an input too few": (lambda: changed(endless(), lambda g: g.input.pop()), "v_in"),
    "an input too many": (
        lambda: changed(endless(), lambda g: g.input.append(info("more", FLOAT, [2]))), "Loop_y"),
    "a circle": (lambda: changed(growing(), second_ring), "Concat_v, Neg_ring"),
    "a name that nobody makes": (
        lambda: changed(growing(), lambda g: g.node[0].input.append("nobody")), "nobody"),
    "a name that is made twice": (
        lambda: changed(growing(), lambda g: g.node.add(op_type="Neg", input=["x"], output=["v"])),
        "'v'"),
    "no body": (lambda: changed(growing(), lambda g: g.Clear()), "Loop_y"),
}  # fmt: skip


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_body_is_one_line(what: str) -> None:
    make, words = MALFORMED[what]
    with pytest.raises(BrokenGraph, match=words) as caught:
        Network(make())
    assert "\n" not in str(caught.value)


def lists(kind: str, *inputs: str, **attributes: Any) -> onnx.ModelProto:
    return model(
        [node("SequenceConstruct", ["x", "x"], ["xs"]), node("SequenceEmpty", [], ["none"]),
         node("SequenceConstruct", ["x", "two"], ["mixed"]), node(kind, list(inputs), ["y"],
                                                                  **attributes)],
        [info("x", INT, ["a", "b"]), info("two", INT, ["c"]), info("five", INT)],
        [onnx.ValueInfoProto(name="y")],
    )  # fmt: skip


MISUSED: dict[str, tuple[str, tuple[str, ...], dict[str, int], str]] = {
    "at": ("SequenceAt", ("xs", "five"), {}, "no position 5 among 2"),
    "erase": ("SequenceErase", ("xs", "five"), {}, "no position 5 among 2"),
    "insert": ("SequenceInsert", ("xs", "x", "five"), {}, "no position 5 to insert among 2"),
    "empty": ("SequenceErase", ("none",), {}, "erases of an empty sequence"),
    "join nothing": ("ConcatFromSequence", ("none",), {"axis": 0}, "joins an empty sequence"),
    "join": ("ConcatFromSequence", ("mixed",), {"axis": 0}, "cannot join a sequence: all"),
    "split": ("SplitToSequence", ("x", "two"), {}, r"splits 2 into \[1, 2\]"),
    "position": ("SequenceAt", ("xs", "two"), {}, "needs a tensor of one element"),
}


@pytest.mark.parametrize("what", MISUSED)
def test_a_wrong_sequence_is_one_line(client: Any, what: str) -> None:
    kind, inputs, attributes, words = MISUSED[what]
    executor = Executor(client, Network(lists(kind, *inputs, **attributes)))
    feed = {"x": np.ones((2, 3), np.int64), "two": np.array([1, 2]), "five": np.array(5)}
    with pytest.raises(BrokenGraph, match=f"node '{kind}_y': .*{words}") as caught:
        executor.inference(feed)
    assert "\n" not in str(caught.value)


def test_a_body_is_saved_and_read_back(tmp_path: Any, client: Any) -> None:
    network = Network(doubling(20))
    network.save(tmp_path / "loop.onnx")
    x, n = np.float32([0.5, 1]), np.array(50)
    again = Executor(client, Network(tmp_path / "loop.onnx")).inference({"x": x, "n": n})
    for got, want in zip(again.values(), run(client, doubling(20), x=x, n=n), strict=True):
        assert got.tolist() == want.tolist()


def test_what_a_body_reads_stays(client: Any) -> None:
    """An Identity that a branch reads by name, and an edit that would take what one reads."""
    given = nested()
    given.graph.node.insert(0, node("Identity", ["x0"], ["x"]))
    given.graph.input[2].name = "x0"
    inputs = {"p": np.array(True), "q": np.array(True), "x0": np.float32([0, 0, 0])}
    assert run(client, given, **inputs)[0].tolist() == [2, 3, 5]
    network = Network(given)
    with pytest.raises(BrokenGraph, match=r"makes 'x', which If_y need"):
        network.remove_node("Identity_x")


def test_a_runtime_reads_the_model_with_its_sequences() -> None:
    pytest.importorskip("onnxruntime")
    with WorkerClient("onnxruntime") as client:
        x, n = np.float32([0.5, 1]), np.array(3)
        last, sums = run(client, doubling(1e9), x=x, n=n)
        assert last.tolist() == [8, 8]
        assert sums.shape == (3, 2)
        given = model([node("SequenceInsert", ["xs", "x"], ["ys"])],
                      [sequence("xs"), info("x", FLOAT, [2])], [sequence("ys")])  # fmt: skip
        (ys,) = run(client, given, xs=[x + 1], x=x)
        assert [y.tolist() for y in ys] == [[1.5, 2], [0.5, 1]]
