"""The references on CuPy's arrays, tried with a CuPy that is NumPy and refuses NumPy's arrays."""

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.special

from d5test.backends.base import Unsupported
from d5test.case import Case, Tensor
from d5test.reference.operators import OPERATORS

MISSING = ("erf", "put_along_axis")


class Array(np.ndarray[Any, Any]):
    """An array that claims to be on a device."""


def refusing(function: Any) -> Any:
    """The NumPy function as CuPy has it: NumPy's arrays raise, results are on the device."""

    def called(*args: Any, **kwargs: Any) -> Any:
        refuse((args, kwargs))
        return moved(function(*args, **kwargs))

    if hasattr(function, "at"):
        called.at = function.at  # type: ignore[attr-defined]
    if function in (np.add, np.multiply):  # the only ones of which CuPy has it
        called.accumulate = refusing(function.accumulate)  # type: ignore[attr-defined]
    return called


def refuse(x: Any) -> None:
    if type(x) is np.ndarray:
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(x, (tuple, list)):
        for one in x:
            refuse(one)
    if isinstance(x, dict):
        refuse(list(x.values()))


def moved(y: Any) -> Any:
    if isinstance(y, (np.ndarray, np.generic)):
        return np.asarray(y).view(Array)
    return [moved(one) for one in y] if isinstance(y, (tuple, list)) else y


class FakeCupy(ModuleType):
    __version__ = "14.2"
    ndarray = Array

    def __init__(self, gpus: int = 2) -> None:
        super().__init__("cupy")
        stream = SimpleNamespace(synchronize=lambda: None)
        properties = {"name": b"NVIDIA H200"}
        self.cuda = SimpleNamespace(
            is_available=lambda: gpus > 0,
            get_current_stream=lambda: stream,
            Device=lambda number: SimpleNamespace(use=lambda: None),
            runtime=SimpleNamespace(
                getDeviceCount=lambda: gpus, getDeviceProperties=lambda number: properties
            ),
        )
        tricks = np.lib.stride_tricks
        self.lib = SimpleNamespace(
            stride_tricks=SimpleNamespace(
                as_strided=refusing(tricks.as_strided),
                sliding_window_view=refusing(tricks.sliding_window_view),
            )
        )
        self.asarray = lambda x: moved(np.asarray(x))
        self.array = lambda x, order: moved(np.array(x, order=order))
        self.asnumpy = lambda x: np.array(x)

    def __getattr__(self, name: str) -> Any:
        if name in MISSING:
            raise AttributeError(name)
        return refusing(getattr(np, name))

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return refusing(np.where)(condition.astype("?"), x, y)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The backend's module, loaded with the fake."""
    x, scipy_, special = (ModuleType(n) for n in ("cupyx", "cupyx.scipy", "cupyx.scipy.special"))
    x.scipy = scipy_  # type: ignore[attr-defined]
    scipy_.special = special  # type: ignore[attr-defined]
    for name in ("erf", "expit"):
        setattr(special, name, refusing(getattr(scipy.special, name)))
    for module in (FakeCupy(), x, scipy_, special):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "d5test.backends.cupy", raising=False)
    yield importlib.import_module("d5test.backends.cupy")
    sys.modules.pop("d5test.backends.cupy", None)


def some(*shape: int) -> Tensor:
    return Tensor(shape, "float64")


def ints(*values: int) -> Tensor:
    return Tensor((len(values),), "int64", data=values)


def below(limit: int, *shape: int) -> Tensor:
    return Tensor(shape, "int64", ("below", limit))


IMAGE = some(2, 4, 7, 5)
CASES: list[tuple[str, tuple[Tensor | None, ...], dict[str, Any]]] = [
    ("Gelu", (some(3, 5),), {}),
    ("Softplus", (some(3, 5),), {}),
    ("Mul", (some(3, 1), some(2, 1, 5)), {}),
    ("Pow", (Tensor((3,), "float64", ("positive",)), Tensor((), "int64", data=(2,))), {}),
    ("Einsum", (some(2, 3, 5), some(5, 3)), {"equation": "bij,ji->bi"}),
    ("Conv", (IMAGE, some(6, 2, 3, 2), some(6)), {"group": 2, "pads": (1, 0, 2, 1)}),
    ("ConvTranspose", (IMAGE, some(4, 3, 3, 2)), {"strides": (2, 3)}),
    ("MaxPool", (IMAGE,), {"kernel_shape": (3, 2), "strides": (2, 2), "ceil_mode": 1}),
    ("AveragePool", (IMAGE,), {"kernel_shape": (3, 2), "pads": (1, 1, 1, 0)}),
    ("LayerNormalization", (IMAGE, some(7, 5), some(7, 5)), {"axis": 2}),
    ("SoftmaxCrossEntropyLoss", (some(9, 4), below(4, 9), some(4)), {"ignore_index": 1}),
    ("ReduceMax", (some(3, 4, 5), ints(0, -1)), {}),
    ("ReduceLogSumExp", (some(3, 4, 5), ints(1)), {"keepdims": 0}),
    ("Split", (some(2, 7), ints(2, 5)), {"axis": 1}),
    ("Slice", (some(5, 7), ints(-1, 1), ints(-99, 99), ints(1, 0), ints(-2, 3)), {}),
    ("Gather", (some(5, 4, 3), below(4, 2, 2)), {"axis": 1}),
    ("Pad", (some(5, 7), ints(1, -1, 0, 2), some()), {}),
    ("Pad", (some(5, 7), ints(2, 1, 0, 2)), {"mode": "reflect"}),
    ("Where", (Tensor((3, 1), "bool", ("mask",)), some(3, 5), some(5)), {}),
    ("Attention", (some(2, 4, 5, 8), some(2, 2, 5, 8), some(2, 2, 5, 8)), {"is_causal": 1}),
    ("LSTM", (some(4, 3, 2), some(2, 20, 2), some(2, 20, 5), some(2, 40), ints(4, 2, 3)),
     {"hidden_size": 5, "direction": "bidirectional"}),
]  # fmt: skip


@pytest.mark.parametrize(
    "name,inputs,given", CASES, ids=[f"{row[0]}-{i}" for i, row in enumerate(CASES)]
)
def test_a_reference_on_the_device_is_the_reference(
    cupy: Any, name: str, inputs: tuple[Tensor | None, ...], given: dict[str, Any]
) -> None:
    backend, op = cupy.Cupy(), OPERATORS[name](**given)
    case = Case(op, inputs, seed=3)
    arrays = case.arrays()
    want = op(*arrays)
    dys = case.upstream(want)
    tensors = [None if a is None else backend.put(a, a.dtype.name) for a in arrays]
    function = partial(backend.rows[name].call, op)
    for y, expected in zip(function(*tensors), want, strict=True):
        assert isinstance(y, Array)
        np.testing.assert_array_equal(backend.get(y)[0], expected)
    grads = [None if dy is None else backend.put(dy, "float64") for dy in dys]
    _, dxs = backend.vjp(function, tensors, grads, case.wanted)
    expected = op.vjp(dys, arrays, want)
    for i, dx in zip(case.wanted, dxs, strict=True):
        assert (dx is None) == (expected[i] is None)
        if dx is not None:
            np.testing.assert_array_equal(backend.get(dx)[0], expected[i])


def test_half_precision_computes_in_single_and_rounds_the_output(cupy: Any) -> None:
    backend, op = cupy.Cupy(), OPERATORS["Exp"]()
    x = np.linspace(-3, 3, 7).astype(np.float16)
    (y,) = backend.rows["Exp"].call(op, backend.put(x, "float16"))
    got, dtype = backend.get(y)
    assert dtype == "float16"
    np.testing.assert_array_equal(got, np.exp(x.astype(np.float32)).astype(np.float16))


def test_layouts_keep_the_values(cupy: Any) -> None:
    backend, x = cupy.Cupy(), np.arange(15.0).reshape(3, 5)
    for layout in backend.layouts:
        same = {"broadcast": x[0], "expanded": x[0, 0]}.get(layout, x)
        values = np.broadcast_to(same, x.shape)
        tensor = backend.put(values, "float64", layout)
        np.testing.assert_array_equal(backend.get(tensor)[0], values)
    assert backend.put(x, "float64", "transposed").strides == (8, 24)
    assert backend.put(x, "float64", "reversed").strides == (-40, 8)


def test_nothing_leaves_the_device_by_accident(cupy: Any) -> None:
    with pytest.raises(TypeError, match="cannot become NumPy's"):
        np.asarray(cupy.OnDevice(moved(np.ones(3))))


def test_what_is_not_there_is_said(cupy: Any) -> None:
    assert cupy.Cupy.devices() == ("cuda:0", "cuda:1")
    assert cupy.Cupy("cuda:1").describe_device() == "NVIDIA H200"
    with pytest.raises(Unsupported, match=r"no device 'cpu' here, only cuda:0, cuda:1"):
        cupy.Cupy("cpu")
    with pytest.raises(Unsupported, match="no bfloat16"):
        cupy.Cupy().put(np.zeros(3, np.uint16), "bfloat16")
    cupy.cupy.cuda.is_available = lambda: False
    assert cupy.Cupy.devices() == ()
    with pytest.raises(Unsupported, match=r"cupy 14.2 is installed, but .* an NVIDIA GPU"):
        cupy.Cupy()
