"""TensorFlow's rows against the references' bars, eager, as graphs and under XLA."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from d5test.backends.base import bits
from d5test.case import Case, Tensor, dtype_of
from d5test.checks import CHECKS
from d5test.client.client import WorkerClient
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import double, forward_bounds, gradient_bounds
from d5test.numerics.judgement import Judgement, tightest
from d5test.reference.operators import OPERATORS

pytest.importorskip("tensorflow")

import tensorflow as tf

from d5test.backends.tensorflow import TensorFlow, TensorFlowCompiled, TensorFlowXla
from d5test.reference.operators.reductions import ReduceMin
from d5test.worker.bound import Bound, OperatorView

MODES: dict[str, Any] = {b.mode: b() for b in (TensorFlow, TensorFlowCompiled, TensorFlowXla)}


def t(*shape: int, values: tuple[Any, ...] = ("normal",)) -> Tensor:
    return Tensor(shape, values=values)


def ints(*data: int) -> Tensor:
    return Tensor((len(data),), "int64", data=data)


def scalar(value: float) -> Tensor:
    return Tensor((), data=(value,))


def labels(*shape: int, limit: int) -> Tensor:
    return Tensor(shape, "int64", ("below", limit))


def positive(*shape: int) -> Tensor:
    return t(*shape, values=("positive",))


def mask(*shape: int) -> Tensor:
    return Tensor(shape, "bool", ("mask", 0.7))


X = t(2, 4, 7, 5)
IGNORED = Tensor((2, 3), "int64", data=(1, -1, 0, 3, -1, 2))
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp")

ROWS: list[tuple[str, dict[str, Any], tuple[Tensor | None, ...]]] = [
    *(
        (name, {}, (t(3, 5),))
        for name in ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Exp", "Erf", "Gelu", "Softplus")
    ),
    *((name, {}, (t(3, 5, values=("nonzero",)),)) for name in ("Abs", "Neg", "Reciprocal")),
    *((name, {}, (positive(3, 5),)) for name in ("Log", "Sqrt")),
    ("Gelu", {"approximate": "tanh"}, (t(3, 5),)),
    *(
        (name, {}, (t(3, 5, values=("uniform", -4, 4)),))
        for name in ("Elu", "HardSigmoid", "HardSwish", "Mish", "Selu", "ThresholdedRelu")
    ),
    *((name, {"alpha": 0.25}, (t(3, 5),)) for name in ("Elu", "Celu", "ThresholdedRelu")),
    ("Selu", {"alpha": 0.25, "gamma": 2.0}, (t(3, 5),)),
    ("PRelu", {}, (t(2, 3, 5), t(3, 1))),
    ("Clip", {}, (t(3, 5), scalar(-0.5), scalar(0.75))),
    ("Clip", {}, (t(3, 5), scalar(0.75), scalar(-0.5))),
    ("Clip", {}, (Tensor((3,), data=(-0.5, 0.75, 0.0)), scalar(0.75), scalar(-0.5))),
    ("Clip", {}, (t(3, 5), scalar(-0.5))),
    ("Clip", {}, (t(3, 5), None, scalar(0.75))),
    ("InstanceNormalization", {}, (X, t(4), t(4))),
    ("Tile", {}, (t(2, 3), ints(3, 2))),
    ("LeakyRelu", {"alpha": 0.25}, (t(3, 5),)),
    *((name, {}, (t(3, 5), t(2, 1, 5))) for name in ("Add", "Sub", "Mul", "Max", "Min")),
    ("Div", {}, (t(3, 5), t(2, 1, 5, values=("nonzero",)))),
    ("Pow", {}, (positive(3, 5), t(5))),
    *((name, {}, (t(3, 5), t(5), t(2, 1, 1))) for name in ("Max", "Min")),
    ("Max", {}, (t(3, 5),)),
    ("MatMul", {}, (t(2, 1, 3, 5), t(4, 5, 7))),
    ("MatMul", {}, (t(5), t(5, 7))),
    ("MatMul", {}, (t(2, 3, 5), t(5))),
    ("MatMul", {}, (t(5), t(5))),
    ("Gemm", {"alpha": 0.5}, (t(3, 5), t(5, 7))),
    ("Gemm", {"alpha": 0.5, "beta": 0.25, "transA": 1, "transB": 1}, (t(5, 3), t(7, 5), t(7))),
    ("Einsum", {"equation": "bij, bjk -> bki"}, (t(2, 3, 5), t(2, 5, 4))),
    ("Einsum", {"equation": "...ij,jk"}, (t(2, 3, 5), t(5, 4))),
    ("Conv", {}, (X, t(3, 4, 3, 2), t(3))),
    ("Conv", {"pads": (1, 0, 2, 1), "strides": (2, 3)}, (X, t(3, 4, 3, 2), t(3))),
    ("Conv", {"dilations": (2, 3)}, (X, t(3, 4, 3, 2))),
    ("Conv", {"group": 2, "auto_pad": "SAME_LOWER", "strides": (2, 2)}, (X, t(6, 2, 3, 2))),
    ("Conv", {"strides": (2,)}, (t(2, 3, 9), t(5, 3, 4))),
    ("Conv", {"group": 2}, (t(2, 4, 5, 3, 4), t(6, 2, 2, 3, 2), t(6))),
    ("ConvTranspose", {"strides": (2, 3)}, (X, t(4, 3, 3, 2), t(3))),
    ("ConvTranspose", {"pads": (1, 0, 2, 1), "group": 2}, (X, t(4, 3, 3, 2), t(6))),
    (
        "ConvTranspose",
        {"strides": (3, 2), "output_padding": (2, 1), "pads": (0, 1, 1, 0)},
        (X, t(4, 3, 2, 3), t(3)),
    ),
    ("ConvTranspose", {"auto_pad": "SAME_UPPER", "strides": (2, 2)}, (X, t(4, 3, 3, 3))),
    ("ConvTranspose", {"output_shape": (13, 9), "strides": (2, 2)}, (X, t(4, 3, 3, 2))),
    ("ConvTranspose", {"strides": (2,)}, (t(2, 3, 5), t(3, 4, 3))),
    ("ConvTranspose", {}, (t(2, 3, 3, 2, 4), t(3, 2, 2, 3, 2))),
    ("MaxPool", {"kernel_shape": (3, 2), "pads": (1, 0, 1, 1), "strides": (2, 2)}, (X,)),
    ("MaxPool", {"kernel_shape": (2, 2), "ceil_mode": 1, "strides": (2, 3)}, (X,)),
    ("MaxPool", {"kernel_shape": (2, 2), "dilations": (2, 3)}, (X,)),
    ("MaxPool", {"kernel_shape": (3,), "auto_pad": "SAME_UPPER"}, (t(2, 3, 8),)),
    ("AveragePool", {"kernel_shape": (3, 2), "strides": (2, 2)}, (X,)),
    (
        "AveragePool",
        {"kernel_shape": (3, 2), "pads": (1, 0, 1, 1), "count_include_pad": 1},
        (X,),
    ),
    ("AveragePool", {"kernel_shape": (3, 2), "auto_pad": "SAME_UPPER"}, (X,)),
    ("GlobalAveragePool", {}, (X,)),
    ("BatchNormalization", {}, (X, t(4), t(4), t(4), positive(4))),
    ("BatchNormalization", {"training_mode": 1}, (X, t(4), t(4), t(4), positive(4))),
    ("LayerNormalization", {"axis": 2}, (t(2, 3, 5, 4), t(5, 4), t(4))),
    ("GroupNormalization", {"num_groups": 2}, (X, t(4), t(4))),
    ("RMSNormalization", {}, (t(3, 5), t(5))),
    ("Softmax", {"axis": 1}, (t(2, 5, 3),)),
    ("LogSoftmax", {}, (t(2, 5),)),
    ("SoftmaxCrossEntropyLoss", {}, (t(3, 5), labels(3, limit=5))),
    (
        "SoftmaxCrossEntropyLoss",
        {"ignore_index": -1},
        (t(2, 5, 3), IGNORED, positive(5)),
    ),
    (
        "NegativeLogLikelihoodLoss",
        {"reduction": "none"},
        (t(2, 5, 3), labels(2, 3, limit=5), positive(5)),
    ),
    ("NegativeLogLikelihoodLoss", {"ignore_index": -1}, (t(2, 5, 3), IGNORED)),
    *((name, {"keepdims": 0}, (t(2, 3, 5), ints(-1, 0))) for name in REDUCTIONS),
    *((name, {}, (t(2, 3, 5),)) for name in REDUCTIONS),
    ("ReduceSum", {"noop_with_empty_axes": 1}, (t(2, 3),)),
    ("Reshape", {}, (t(2, 3, 4), ints(0, -1, 2))),
    ("Transpose", {"perm": (2, 0, 1)}, (t(2, 3, 4),)),
    ("Concat", {"axis": 1}, (t(2, 3), t(2, 4), t(2, 1))),
    ("Split", {"axis": 1}, (t(2, 7), ints(3, 4))),
    ("Split", {"axis": -1, "num_outputs": 3}, (t(2, 7),)),
    ("Slice", {}, (t(5, 7), ints(6, 1), ints(-100, 4), ints(1, 0), ints(-2, 1))),
    ("Gather", {"axis": 1}, (t(2, 5), Tensor((2, 3), "int64", ("within", 5)))),
    ("Pad", {}, (t(3, 4), ints(1, 0, 2, 3), t())),
    ("Pad", {}, (t(3, 4), ints(-1, 2), None, ints(1))),
    ("Pad", {"mode": "reflect"}, (t(3, 4), ints(1, 0, 2, 3))),
    ("Where", {}, (mask(3, 1), t(3, 4), t(2, 1, 4))),
    ("Expand", {}, (t(3, 1), ints(2, 1, 4))),
    ("Dropout", {}, (t(3, 4), Tensor((), data=(0.25,)), mask(3, 4))),
    ("Attention", {"softcap": 2.0}, (t(2, 4, 3, 5), t(2, 2, 6, 5), t(2, 2, 6, 7))),
    (
        "Attention",
        {"is_causal": 1, "q_num_heads": 2, "kv_num_heads": 2, "qk_matmul_output_mode": 3},
        (t(2, 3, 8), t(2, 4, 8), t(2, 4, 6), mask(3, 4)),
    ),
    (
        "Attention",
        {"scale": 0.5, "left_window_size": 2},
        (t(2, 2, 3, 5), t(2, 2, 4, 5), t(2, 2, 4, 7), t(1, 1, 3, 9), t(2, 2, 5, 5), t(2, 2, 5, 7)),
    ),
    *(
        (
            name,
            {"direction": direction, "layout": 0, "hidden_size": 3, **more},
            (t(5, 2, 4), t(n, 3 * g, 4), t(n, 3 * g, 3), t(n, 6 * g), lengths, t(n, 2, 3)),
        )
        for name, g in GATES.items()
        for direction, n, lengths, more in (
            ("forward", 1, None, {}),
            ("reverse", 1, Tensor((2,), "int32", data=(5, 3)), {}),
            ("bidirectional", 2, Tensor((2,), "int32", data=(2, 5)), {}),
        )
    ),
    (
        "LSTM",
        {"hidden_size": 3},
        (t(2, 2, 4), t(1, 12, 4), t(1, 12, 3), None, None, None, None, t(1, 9)),
    ),
    (
        "GRU",
        {"hidden_size": 3, "linear_before_reset": 1, "layout": 1},
        (t(2, 3, 4), t(1, 9, 4), t(1, 9, 3)),
    ),
]

NAMES = [f"{name}-{i}" for i, (name, _, _) in enumerate(ROWS)]


LAST = {row[0]: row for row in ROWS}
"""One row of each operator: a compilation takes its time."""


def case(row: tuple[str, dict[str, Any], tuple[Tensor | None, ...]], dtype: str) -> Case:
    name, attributes, inputs = row
    typed = tuple(
        x if x is None or x.dtype != "float32" else Tensor(x.shape, dtype, x.values, data=x.data)
        for x in inputs
    )
    return Case(OPERATORS[name](**attributes), typed, seed=3)


def judged(backend: Any, case: Case) -> tuple[Judgement, Judgement]:
    """Forward and gradient of a row, as its worker calls it, on a backend in this process."""
    row = backend.rows[case.op.name]
    view = OperatorView(case.op.name, {f.name: getattr(case.op, f.name) for f in fields(case.op)})
    arrays = case.arrays()
    bound = Bound(backend, row, view)
    tensors = [None if x is None else backend.put(*bits(x)) for x in arrays]
    y = bound.function(*tensors)
    outputs = tuple(y) if isinstance(y, (tuple, list)) else (y,)
    upstream = case.upstream(case.op(*double(arrays))[: len(outputs)])
    grads = [None if dy is None else backend.put(*bits(dy)) for dy in upstream]
    again, gradients = backend.vjp(bound.function, tensors, grads, case.wanted)
    found = [None if dx is None else values(backend, dx) for dx in gradients]
    allowed = classes(case.dtype, flushes=True, ulps=backend.ulps)

    def of_outputs(arithmetic: Any) -> Any:
        bounds = forward_bounds(case.op, arrays, arithmetic)
        return bounds[: len(outputs)] + bounds[: len(again)]

    both = [values(backend, y) for y in (*outputs, *again)]
    forward = tightest(allowed, of_outputs, both)[0]

    def of_gradient(arithmetic: Any) -> Any:
        bounds = gradient_bounds(case.op, arrays, upstream, arithmetic)
        return tuple(bounds[i] for i in case.wanted)

    backward = tightest(allowed, of_gradient, found)[0]
    return forward, backward


def values(backend: Any, tensor: Any) -> np.ndarray[Any, Any]:
    array, dtype = backend.get(tensor)
    return array.view(dtype_of(dtype)) if dtype == "bfloat16" else array


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_row_is_inside_the_bars(row: Any, dtype: str) -> None:
    if row[0] == "Gelu" and dtype == "float64":
        pytest.xfail("tf.nn.gelu rounds its constants to float32")
    forward, backward = judged(MODES["eager"], case(row, dtype))
    assert forward.right, forward
    assert backward.right, backward


@pytest.mark.parametrize("mode", ["compiled", "xla"])
@pytest.mark.parametrize("row", LAST.values(), ids=LAST)
def test_graphs_say_the_same(row: Any, mode: str) -> None:
    MODES[mode].reset()
    before = MODES[mode].compilations()
    forward, backward = judged(MODES[mode], case(row, "float32"))
    assert forward.right, forward
    assert backward.right, backward
    assert MODES[mode].compilations() == before + 2  # the operator, and it with its gradient


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_sixteen_bits_are_in_the_class_that_the_row_allows(row: Any, dtype: str) -> None:
    forward, backward = judged(MODES["eager"], case(row, dtype))
    assert forward.right, forward
    assert backward.right, backward
    assert max(forward.arithmetic, backward.arithmetic) <= TensorFlow.rows[row[0]].arithmetic


def bound(mode: str, name: str, **attributes: Any) -> Any:
    backend = MODES[mode]
    return Bound(backend, backend.rows[name], OperatorView(name, attributes)).function


def put(*values: float, dtype: str = "float32") -> Any:
    return MODES["eager"].put(np.array(values, dtype), dtype)


@pytest.mark.parametrize("mode", ["compiled", "xla"])
def test_new_integers_that_are_a_shape_make_a_new_graph(mode: str) -> None:
    reshape, x = bound(mode, "Reshape", allowzero=0), put(1, 2, 3, 4, 5, 6)
    before = MODES[mode].compilations()
    for shape in ((2, 3), (3, 2), (2, 3)):
        assert reshape(x, put(*shape, dtype="int64")).shape == shape
    assert MODES[mode].compilations() == before + 2


@pytest.mark.parametrize("mode", ["compiled", "xla"])
def test_integers_that_are_values_are_arguments(mode: str) -> None:
    gather, x = bound(mode, "Gather", axis=0), put(1, 2, 3, 4, 5, 6)
    before = MODES[mode].compilations()
    for i, j in ((2, 3), (-1, 0), (4, 4)):
        np.testing.assert_array_equal(gather(x, put(i, j, dtype="int64")), x.numpy()[[i, j]])
    assert MODES[mode].compilations() == before + 1


@pytest.mark.parametrize("mode", MODES)
def test_a_tensor_given_twice_has_one_whole_gradient(mode: str) -> None:
    x, dy = put(1, 2, 3), put(5, 7, 11)
    _, (dx,) = MODES[mode].vjp(bound(mode, "Mul"), [x, x], [dy], [0])
    np.testing.assert_array_equal(dx, [2 * 1 * 5, 2 * 2 * 7, 2 * 3 * 11])


def test_what_xla_cannot_compile_raises() -> None:
    def host(x: Any) -> Any:
        return tf.py_function(lambda x: x + 1, [x], tf.float32)

    with pytest.raises(tf.errors.OpError) as raised:
        MODES["xla"].compile(host)(put(1, 2))
    assert "unsupported operations" in MODES["xla"].refusal(raised.value)


def test_a_kernel_that_tensorflow_lacks_is_unsupported() -> None:
    row = ("ConvTranspose", {"dilations": (2, 2)}, (t(2, 3, 5, 4), t(3, 4, 3, 2)))
    with pytest.raises(tf.errors.OpError) as raised:
        judged(MODES["eager"], case(row, "float64"))
    assert "dilation rates larger than 1" in MODES["eager"].refusal(raised.value)
    forward, backward = judged(MODES["xla"], case(row, "float64"))
    assert forward.right
    assert backward.right


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_come_back_as_their_own(dtype: str) -> None:
    sent = np.arange(5, dtype="float32" if dtype == "float32" else "uint16")
    tensor = MODES["eager"].put(sent, dtype)
    sent[:] = 9
    got, name = MODES["eager"].get(tensor)
    assert name == dtype
    np.testing.assert_array_equal(got, np.arange(5))
    got[...] = 9
    np.testing.assert_array_equal(MODES["eager"].get(tensor)[0], np.arange(5))


@pytest.mark.parametrize(("backend", "name"), [(TensorFlow, "MatMul"), (TensorFlowXla, "dot")])
def test_what_runs_is_told_by_name(backend: Any, name: str) -> None:
    one = backend()
    a, b = (one.put(np.ones(shape, np.float32), "float32") for shape in ((3, 5), (5, 7)))
    assert one.kernel_names(tf.matmul, [a, b]) == (name,)


@pytest.mark.parametrize("shape", [(2, 3, 18, 19), (4, 60, 90)])
def test_equal_elements_may_share_a_gradient_that_is_subnormal(shape: tuple[int, ...]) -> None:
    """Each share is rounded when it is stored, all of them the same way."""
    zeros = Tensor(shape, dtype="float16", values=("onehot",))
    with WorkerClient("tensorflow") as client:
        assert CHECKS["low_precision"].run(client, Case(ReduceMin(), (zeros, None), 147)).right
