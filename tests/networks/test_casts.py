"""Networks with conversions inside are judged whole and node by node, each tensor in its dtype."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.case import Tensor
from d5test.client.client import InProcessClient, WorkerClient
from d5test.dtypes import NUMBERS
from d5test.networks import Network, Value
from d5test.networks.executor import Executor
from d5test.networks.nodes import judged_nodes
from d5test.networks.specialise import specialised
from d5test.networks.whole import Expectation, KinkInDoubt, arithmetic, expected
from d5test.networks.zoo.built import Built, Draft
from d5test.numerics.judgement import Judgement
from d5test.reference.operators import OPERATORS

MatMul, Add, Cast, CastLike = (OPERATORS[name] for name in ("MatMul", "Add", "Cast", "CastLike"))
Sum, Relu, Softmax = (
    OPERATORS["ReduceSum"](keepdims=0),
    OPERATORS["Relu"](),
    OPERATORS["Softmax"](),
)


@pytest.fixture(scope="module", params=["numpy", "torch"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    pytest.importorskip(request.param)
    with WorkerClient(request.param) as client:
        yield client


def to(dtype: str) -> Any:
    return Cast(to=NUMBERS[dtype])


def mixed(inside: str, outside: str = "float32") -> Network:
    """As mixed precision has it: products in the dtype inside, all else in that outside."""
    draft = Draft("mixed", x=Value(outside, ("n", 24)))
    h = "x"
    for i in range(2):
        w = draft.normal(f"w{i}", (24, 24), 0.2)
        h = draft.add(f"in{i}", to(inside), h)
        w = draft.add(f"w_in{i}", CastLike(), w, h)
        h = draft.add(f"product{i}", MatMul(), h, w)
        h = draft.add(f"out{i}", to(outside), h)
        b = draft.add(f"b_out{i}", CastLike(), draft.normal(f"b{i}", (24,), 0.1), h)
        h = draft.add(f"bias{i}", Add(), h, b)
    y = draft.add("y", Softmax, h)
    draft.add("squares", OPERATORS["Mul"](), y, y)
    draft.add("loss", Sum, "squares")
    return draft.finished("y", "loss")


def judged(
    client: Any, network: Network, wanted: Expectation, inputs: dict[str, Any]
) -> Judgement:
    outputs, gradients = Executor(client, network).inference_and_backprop(inputs, "loss")
    named = {f"gradient of {name}": dx for name, dx in gradients.items()}
    results = {**outputs, **named}
    assert not wanted.misshapen(results)
    return wanted.judged(results)


def wanted_of(network: Network, x: Any, loss: str | None = "loss") -> Expectation:
    graph = specialised(network.graph, {"x": x.shape})
    return expected(graph, lambda _: {"x": x}, loss, arithmetic(network))


X = Tensor((5, 24)).array(0, 0)
WRONG = Path(__file__).with_name("wrong.py")


@pytest.mark.parametrize(
    ("inside", "outside"),
    [("float16", "float32"), ("bfloat16", "float32"), ("float64", "float32"),
     ("float32", "float16"), ("float32", "bfloat16")],
)  # fmt: skip
def test_an_honest_network_with_casts_is_right(client: Any, inside: str, outside: str) -> None:
    network, x = mixed(inside, outside), Tensor((5, 24), outside).array(0, 0)
    wanted = wanted_of(network, x)
    assert wanted.telling or "float16" in (inside, outside)
    assert not wanted.void
    assert 0 < judged(client, network, wanted, {"x": x}).ratio < 0.7
    found = judged_nodes(Executor(client, network), {"x": x}, "loss")
    assert not found.faults
    assert not found.reasons
    assert found.judged == 2 * len(specialised(network.graph, {"x": x.shape}).nodes)


def test_each_output_is_wanted_in_its_dtype() -> None:
    draft = Draft("two", x=Value("float32", ("n", 3)))
    draft.add("half", to("float16"), "x")
    draft.add("y", Relu, "x")
    network, x = draft.finished("half", "y"), Tensor((5, 3)).array(0, 0)
    wanted = wanted_of(network, x, None)
    right = {"half": x.astype(np.float16), "y": np.maximum(x, 0)}
    assert not wanted.misshapen(right)
    assert wanted.judged(right).ratio < 1
    assert wanted.misshapen({**right, "half": x}) == "half is float32, not float16"
    narrow = x.astype(np.float16).astype(np.float32)
    assert wanted.judged({**right, "y": np.maximum(narrow, 0)}).ratio > 1


def test_a_number_beyond_the_new_dtype_is_infinite(client: Any) -> None:
    """A mask of -3.4e38, as transformers have it, in float16."""
    draft = Draft("masked", x=Value("float16", (2, 3)))
    mask = draft.array("mask", np.float32([[0, -3.4e38, 0], [0, 0, -3.4e38]]))
    mask = draft.add("half", to("float16"), mask)
    draft.add("scores", Add(), "x", mask)
    draft.add("y", Softmax, "scores")
    network, x = draft.finished("scores", "y"), Tensor((2, 3), "float16").array(0, 0)
    wanted = wanted_of(network, x, None)
    outputs = Executor(client, network).inference({"x": x})
    assert wanted.judged(outputs).ratio < 1
    assert np.isinf(outputs["scores"]).sum() == 2
    outputs["scores"] = np.maximum(outputs["scores"], np.float16(-65504))
    assert wanted.judged(outputs).ratio > 1


def test_a_cast_without_a_gradient_is_found() -> None:
    network = mixed("float16")
    wanted = wanted_of(network, X)
    for backend, right in (("numpy", True), (f"{WRONG}:StoppedCast", False)):
        client = InProcessClient(backend)
        assert judged(client, network, wanted, {"x": X}).right == right


def indexed() -> Network:
    """Rows of a table at the whole numbers of 3 |x|."""
    draft = Draft("indexed", x=Value("float32", ("n",)))
    h = draft.add("size", OPERATORS["Abs"](), "x")
    h = draft.add("scaled", OPERATORS["Mul"](), h, draft.array("three", np.float32(3)))
    h = draft.add("at", to("int64"), h)
    h = draft.add("rows", OPERATORS["Gather"](), draft.normal("table", (20, 5), 1), h)
    draft.add("squares", OPERATORS["Mul"](), "rows", "rows")
    draft.add("loss", Sum, "squares")
    return draft.finished("rows", "loss")


def test_whole_numbers_are_cut_and_not_rounded() -> None:
    network, x = indexed(), Tensor((7,)).array(0, 0)
    wanted = wanted_of(network, x)
    for backend, right in (("numpy", True), (f"{WRONG}:RoundedCast", False)):
        client = InProcessClient(backend)
        assert judged(client, network, wanted, {"x": x}).right == right
    x[2] = 5 / 3
    with pytest.raises(KinkInDoubt, match="'at': 1 elements are in doubt"):
        wanted_of(network, x)


def test_a_network_that_draws_by_chance_is_judged_by_its_other_nodes() -> None:
    draft = Draft("noisy", x=Value("float32", ("n", 24)))
    draft.add("noise", OPERATORS["RandomNormalLike"](seed=3.0), "x")
    draft.add("y", Add(), "x", "noise")
    network = draft.finished("y")
    with pytest.raises(Unsupported, match="RandomNormalLike is drawn by chance"):
        wanted_of(network, X, None)
    with InProcessClient("numpy") as client:
        each = judged_nodes(Executor(client, network), {"x": X}, None)
    assert each.judged == 1
    assert not each.faults
    assert "distribution" in each.reasons["noise"]


def test_inputs_are_drawn_in_their_dtypes(tmp_path: Path) -> None:
    mixed("float32", "float16").save(tmp_path / "half.onnx")
    (x,) = Built.from_file(tmp_path / "half.onnx").inputs().values()
    assert x.dtype == np.float16
    draft = Draft("masked", x=Value("float32", (2, 3)), mask=Value("bool", (2, 3)))
    draft.add("y", OPERATORS["Where"](), "mask", "x", draft.array("zero", np.float32(0)))
    draft.finished("y").save(tmp_path / "masked.onnx")
    inputs = Built.from_file(tmp_path / "masked.onnx").inputs()
    assert [x.dtype.name for x in inputs.values()] == ["float32", "bool"]


def test_a_runtime_may_keep_digits_between_nodes_of_16_bits() -> None:
    pytest.importorskip("onnxruntime")
    network, x = mixed("float32", "float16"), Tensor((5, 24), "float16").array(0, 0)
    wanted = wanted_of(network, x, None)
    with WorkerClient("onnxruntime") as client:
        executor = Executor(client, network)
        assert wanted.judged(executor.inference({"x": x})).right
        found = judged_nodes(executor, {"x": x}, None)
    assert not found.faults
    assert set(found.reasons.values()) == {
        "float16: between its nodes a runtime may keep more digits than it shows"
    }
    assert found.judged
