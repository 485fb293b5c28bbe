"""oneDNN as a backend: what it computes, what it does not have, and where it is not installed."""

import ctypes

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.case import Case, Operator, Tensor
from d5test.checks import CHECKS
from d5test.client import registry
from d5test.client.client import InProcessClient, WorkerClient
from d5test.native.onednn import OneDnn, version
from d5test.reference.operators import OPERATORS

here = pytest.mark.skipif("onednn" not in registry.installed(), reason="no oneDNN and compiler")


@pytest.fixture(scope="module")
def client() -> InProcessClient:
    return InProcessClient("onednn")


@here
@pytest.mark.parametrize(
    ("most", "told"), [("SSE41", "cpu (SSE)"), ("AVX", "cpu (AVX)"), ("AVX2", "cpu (AVX2)")]
)
def test_the_device_says_which_instructions_are_used(most: str, told: str) -> None:
    with WorkerClient("onednn", environment={"DNNL_MAX_CPU_ISA": most}) as client:
        assert client.about.device_name == told


def drawn(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def computed(op: Operator, *inputs: np.ndarray) -> np.ndarray:
    (y,) = OneDnn.rows[op.name].plan(op, inputs)(*inputs)
    return y


@here
@pytest.mark.parametrize(
    "op, shapes",
    [
        (OPERATORS["Conv"](group=2, strides=(2, 1), dilations=(1, 2), pads=(1, 0, 2, 1)),
         ((2, 4, 9, 8), (6, 2, 3, 2), (6,))),
        (OPERATORS["ConvTranspose"](group=2, strides=(3,), output_padding=(2,)),
         ((2, 4, 5), (4, 3, 2), (6,))),
        (OPERATORS["MatMul"](), ((3, 1, 2, 5), (4, 5, 7))),
        (OPERATORS["MatMul"](), ((5,), (3, 5, 2))),
        (OPERATORS["Gemm"](alpha=0.5, beta=2.0, transA=1), ((3, 2), (3, 5), (2, 1))),
        (OPERATORS["MaxPool"](kernel_shape=(2, 3), dilations=(2, 1)), ((2, 3, 7, 5),)),
        (OPERATORS["AveragePool"](kernel_shape=(3,), strides=(2,), pads=(1, 1)), ((2, 3, 7),)),
        (OPERATORS["BatchNormalization"](training_mode=1),
         ((4, 3, 5), (3,), (3,), (3,), (3,))),
        (OPERATORS["LayerNormalization"](axis=1), ((2, 3, 5), (3, 5), (3, 5))),
        (OPERATORS["Softmax"](axis=1), ((2, 5, 3),)),
    ],
    ids=lambda value: value.name if isinstance(value, Operator) else "",
)  # fmt: skip
def test_values_and_gradients_are_within_the_bars(client, op, shapes):
    regime = "positive" if op.name == "BatchNormalization" else "normal"
    case = Case(op, tuple(Tensor(shape, values=(regime,)) for shape in shapes))
    judgement = CHECKS["gradient"].run(client, case)
    assert judgement.right, judgement
    assert judgement.share == 1


@here
def test_shapes_may_change_between_calls_of_one_plan():
    op = OPERATORS["MaxPool"](kernel_shape=(2,))
    small, large = drawn((2, 3, 4), (5, 2, 7))
    call = OneDnn.rows["MaxPool"].plan(op, [small])
    for x in (small, large, small):
        (y,) = call(x)
        np.testing.assert_array_equal(y, np.maximum(x[..., :-1], x[..., 1:]))


@here
@pytest.mark.parametrize(
    "op, inputs, reason",
    [
        (OPERATORS["MatMul"](), drawn((2, 3), (3, 2), dtype="float64"), "no float64"),
        (OPERATORS["LayerNormalization"](), drawn((2, 3), (1,)), "each normalised element"),
        (OPERATORS["AveragePool"](kernel_shape=(2,), strides=(2,), ceil_mode=1,
                                  count_include_pad=1), drawn((1, 2, 5)), "beyond the padding"),
        (OPERATORS["MatMul"](), drawn((2, 0), (0, 3)), "without elements"),
    ],
    ids=["float64", "scale", "ceil", "empty"],
)  # fmt: skip
def test_what_onednn_does_not_have_is_said(op, inputs, reason):
    with pytest.raises(Unsupported, match=reason):
        computed(op, *inputs)


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    with pytest.raises(Unsupported, match=r"no libdnnl\.so: install oneDNN 2, Debian: apt"):
        version()


def test_without_header_or_compiler_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(registry, "_in_system", lambda file: False)
    assert "onednn" not in registry.installed()
    assert "libdnnl-dev" in registry.missing()["onednn"]
