"""Which functions of its framework a call uses, and which of them is the whole computation."""

from collections.abc import Iterator
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.client.client import InProcessClient, WorkerClient
from d5test.client.messages import Calls
from d5test.reference.operators import OPERATORS

pytest.importorskip("torch")
F = "torch.nn.functional."
ONE = [
    ("Relu", {}, ((2, 3),), "torch.relu", "torch.relu(x0)"),
    ("Elu", {"alpha": 0.5}, ((2, 3),), F + "elu", f"{F}elu(x0, 0.5)"),
    ("PRelu", {}, ((2, 3, 5), (3, 1)), F + "prelu", f"{F}prelu(x0, x1)"),
    ("Gemm", {}, ((2, 3), (3, 5), (5,)), "torch.addmm", "torch.addmm(x0, x1, x2)"),
    ("Concat", {"axis": 1}, ((2, 3), (2, 5)), "torch.cat", "torch.cat((x0, x1), 1)"),
    ("MaxPool", {"kernel_shape": (2, 2)}, ((2, 3, 5, 7),), F + "max_pool2d", ""),
    ("RMSNormalization", {"axis": -2}, ((2, 3, 5), (5,)), F + "rms_norm", ""),
    ("LSTM", {"hidden_size": 3}, ((4, 2, 5), (1, 12, 5), (1, 12, 3)), "torch._VF.lstm", ""),
]
COMPOSED = [
    ("HardSigmoid", {"alpha": 0.3}, ((2, 3),), ("torch.clamp",)),
    ("Max", {}, ((2, 3), (2, 3), (2, 3)), ("torch.maximum",)),
    ("LayerNormalization", {"axis": 2}, ((2, 3, 5), (3, 5)), (F + "layer_norm",)),
    (
        "MaxPool", {"kernel_shape": (2, 2), "pads": (0, 0, 1, 1)}, ((2, 3, 5, 7),),
        (F + "pad", F + "max_pool2d"),
    ),
]  # fmt: skip


def recorded(client: Any, name: str, attributes: dict[str, Any], shapes: Any) -> Calls:
    """The calls of an operator on inputs of these shapes, all their elements different."""
    case = Case(OPERATORS[name](**attributes), tuple(map(Tensor, shapes)), 3)
    return client.record(case.op, case.arrays())


@pytest.fixture(scope="module")
def torch() -> Iterator[WorkerClient]:
    with WorkerClient("torch") as client:
        yield client


@pytest.mark.parametrize(("name", "attributes", "shapes", "function", "source"), ONE)
def test_one_function_computes_everything(
    name: str, attributes: Any, shapes: Any, function: str, source: str, torch: WorkerClient
) -> None:
    calls = recorded(torch, name, attributes, shapes)
    assert (calls.names, calls.one) == ((function,), True)
    assert calls.source.startswith(source or f"{function}(")
    assert calls.modules[:1] == (function.rpartition(".")[0],)


@pytest.mark.parametrize(("name", "attributes", "shapes", "functions"), COMPOSED)
def test_several_functions_are_composed(
    name: str, attributes: Any, shapes: Any, functions: Any, torch: WorkerClient
) -> None:
    calls = recorded(torch, name, attributes, shapes)
    assert (calls.names, calls.one, calls.source) == (functions, False, "")


def test_a_padding_by_a_tensor_is_composed(torch: WorkerClient) -> None:
    pads = Tensor((4,), "int64", data=(0, 1, 1, 0))
    inputs = (Tensor((2, 3)), pads, Tensor((), data=(7.0,)))
    case = Case(OPERATORS["Pad"](), inputs, 3)
    calls = torch.record(case.op, case.arrays())
    assert calls.names == ("torch.ones_like", F + "pad", "torch.where")
    assert not calls.one
    without = torch.record(case.op, case.arrays()[:2])
    assert (without.names, without.one) == ((F + "pad",), True)


def test_what_raises_is_named(torch: WorkerClient) -> None:
    calls = recorded(torch, "MatMul", {}, ((2, 3), (5, 7)))
    assert [place for _, place in calls.tensors] == [0, 1]
    assert calls.names == ("torch.matmul",)
    assert calls.source == "torch.matmul(x0, x1)"


def test_the_framework_is_as_it_was_afterwards() -> None:
    from d5test.backends.torch import elementwise, windows

    before = dict(vars(elementwise)), dict(windows.MAX_POOL)
    client = InProcessClient("torch")
    for name, attributes, shapes, *_ in (*ONE, *COMPOSED):
        recorded(client, name, attributes, shapes)
    assert (vars(elementwise), windows.MAX_POOL) == before


def test_functions_that_are_given_to_functions_are_written_by_name() -> None:
    pytest.importorskip("jax")
    with WorkerClient("jax") as client:
        calls = recorded(client, "MaxPool", {"kernel_shape": (2,)}, ((2, 3, 5),))
        assert calls.names == ("jax.lax.reduce_window",)
        assert "computation=jax.lax.max, " in calls.source
        biased = recorded(client, "Conv", {}, ((1, 2, 5), (3, 2, 2), (3,)))
        assert (biased.names, biased.one) == (("jax.lax.conv_general_dilated",), False)
        inner = recorded(client, "RNN", {"hidden_size": 3}, ((4, 2, 5), (1, 3, 5), (1, 3, 3)))
        assert {"jax.lax.scan", "jax.numpy.tanh"} <= set(inner.names)
        assert not inner.one


def test_a_row_without_a_framework_has_no_calls() -> None:
    client = InProcessClient("numpy")
    assert recorded(client, "Relu", {}, ((2, 3),)) == Calls()
