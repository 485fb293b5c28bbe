"""Calls of the PyTorch backend's rows by hand, and what ONNX's own reference says of them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_model, make_node
from onnx.reference import ReferenceEvaluator

torch = pytest.importorskip("torch")
backend = pytest.importorskip("d5test.backends.torch")
Torch = backend.Torch

BACKEND = Torch()


def attributes(name: str, **given: Any) -> SimpleNamespace:
    """The attributes of an operator with the defaults of ONNX's schema."""
    schema = onnx.defs.get_schema(name).attributes
    values = {
        k: onnx.helper.get_attribute_value(v.default_value)
        for k, v in schema.items()
        if v.default_value.name
    }
    values = {k: decoded(v) for k, v in values.items()}
    return SimpleNamespace(**{**dict.fromkeys(schema), **values, **given})


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [decoded(v) for v in value]
    return value.decode() if isinstance(value, bytes) else value


def put(x: Any, layout: str = "contiguous") -> Any:
    return None if x is None else BACKEND.put(x, x.dtype.name, layout)


def run(name: str, *inputs: Any, **given: Any) -> tuple[Any, ...]:
    y = Torch.rows[name].call(attributes(name, **given), *map(put, inputs))
    return tuple(BACKEND.get(t)[0] for t in (y if isinstance(y, tuple) else (y,)))


def onnx_says(name: str, *inputs: Any, outputs: int, **given: Any) -> list[Any]:
    """What ONNX's own reference returns for one node."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    ys = [f"y{i}" for i in range(outputs)]
    tensor = onnx.helper.make_tensor_value_info
    known = onnx.helper.np_dtype_to_tensor_dtype
    model = make_model(
        onnx.helper.make_graph(
            [make_node(name, names, ys, **given)],
            "one",
            [
                tensor(f"x{i}", known(x.dtype), x.shape)
                for i, x in enumerate(inputs)
                if x is not None
            ],
            [tensor(y, onnx.TensorProto.DOUBLE, None) for y in ys],
        )
    )
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    return ReferenceEvaluator(model).run(None, feeds)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([7, *shape]).standard_normal(shape)


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


X = normal(2, 4, 7, 5)
SEQUENCE = normal(5, 3, 2)
LABELS = np.random.default_rng(1).integers(0, 4, (2, 7, 5))

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(
        (name, (normal(3, 5),), {})
        for name in (
            "Relu",
            "LeakyRelu",
            "Sigmoid",
            "Tanh",
            "Exp",
            "Erf",
            "Gelu",
            "Abs",
            "Neg",
            "Reciprocal",
        )
    ),
    *((name, (np.abs(normal(3, 5)),), {}) for name in ("Log", "Sqrt")),
    *(
        (name, (3 * normal(3, 5),), {})
        for name in ("Elu", "HardSigmoid", "HardSwish", "Mish", "Selu", "ThresholdedRelu")
    ),
    *((name, (normal(3, 5),), {"alpha": 0.25}) for name in ("Elu", "Celu", "ThresholdedRelu")),
    ("Selu", (normal(3, 5),), {"alpha": 0.25, "gamma": 2.0}),
    ("HardSigmoid", (3 * normal(3, 5),), {"alpha": 0.25, "beta": 0.75}),
    ("PRelu", (normal(2, 3, 5), normal(3, 1)), {}),
    ("PRelu", (normal(2, 3, 5), normal(1)), {}),
    ("Clip", (normal(3, 5), np.array(-0.5), np.array(0.75)), {}),
    ("Clip", (normal(3, 5), np.array(0.75), np.array(-0.5)), {}),
    ("Clip", (normal(3, 5), None, np.array(0.75)), {}),
    ("InstanceNormalization", (normal(2, 3, 5, 4), normal(3), normal(3)), {}),
    ("Tile", (normal(2, 3), ints(3, 2)), {}),
    ("Softplus", (normal(3, 5) * 30,), {}),
    ("Gelu", (normal(3, 5),), {"approximate": "tanh"}),
    ("LeakyRelu", (normal(3, 5),), {"alpha": 0.25}),
    *(
        (name, (normal(3, 5), normal(2, 1, 5)), {})
        for name in ("Add", "Sub", "Mul", "Div", "Max", "Min")
    ),
    ("Pow", (np.abs(normal(3, 5)), normal(5)), {}),
    *((name, (normal(3, 5), normal(5), normal(2, 1, 1)), {}) for name in ("Max", "Min")),
    *((name, (normal(3, 5),), {}) for name in ("Max", "Min")),
    ("MatMul", (normal(2, 1, 3, 5), normal(4, 5, 7)), {}),
    ("Gemm", (normal(3, 5), normal(5, 7)), {"alpha": 0.5}),
    (
        "Gemm",
        (normal(5, 3), normal(7, 5), normal(7)),
        {"alpha": 0.5, "beta": 0.25, "transA": 1, "transB": 1},
    ),
    ("Gemm", (normal(3, 5), normal(5, 7), normal(3, 1)), {}),
    ("Einsum", (normal(2, 3, 5), normal(5, 7)), {"equation": "bij,jk->bik"}),
    (
        "Conv",
        (X, normal(6, 2, 3, 2), normal(6)),
        {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 1, 0]},
    ),
    ("Conv", (X, normal(3, 4, 3, 2)), {"pads": [1, 0, 2, 3]}),
    ("Conv", (X, normal(3, 4, 3, 2)), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", (X, normal(3, 4, 3, 2)), {"auto_pad": "SAME_LOWER"}),
    ("Conv", (X, normal(3, 4, 3, 2)), {"auto_pad": "VALID"}),
    ("Conv", (normal(2, 3, 7), normal(5, 3, 3)), {}),
    ("Conv", (normal(2, 3, 4, 5, 6), normal(5, 3, 2, 1, 3)), {}),
    ("ConvTranspose", (X, normal(4, 3, 3, 2), normal(3)), {"strides": [2, 3]}),
    (
        "ConvTranspose",
        (X, normal(4, 3, 3, 2), normal(3)),
        {"strides": [2, 3], "pads": [1, 0, 1, 0], "output_padding": [1, 2]},
    ),
    (
        "ConvTranspose",
        (X, normal(4, 3, 3, 2), normal(3)),
        {"strides": [2, 3], "pads": [1, 0, 0, 1]},
    ),
    (
        "ConvTranspose",
        (X, normal(4, 3, 3, 2)),
        {"strides": [2, 3], "output_shape": [14, 13], "auto_pad": "SAME_LOWER"},
    ),
    ("ConvTranspose", (X, normal(4, 3, 3, 2)), {"strides": [2, 1], "auto_pad": "SAME_UPPER"}),
    ("ConvTranspose", (X, normal(4, 3, 3, 2)), {"strides": [2, 1], "auto_pad": "SAME_LOWER"}),
    ("MaxPool", (X,), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    ("MaxPool", (X,), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", (X,), {"kernel_shape": [3, 2], "pads": [2, 0, 1, 1], "dilations": [2, 1]}),
    ("MaxPool", (X,), {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("MaxPool", (X,), {"kernel_shape": [2, 2], "strides": [3, 2], "pads": [0, 1, 3, 1]}),
    ("MaxPool", (normal(2, 3, 8),), {"kernel_shape": [3], "strides": [3]}),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1]}),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "count_include_pad": 1}),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "dilations": [2, 1], "strides": [2, 2]}),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    (
        "AveragePool",
        (X,),
        {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [0, 0, 1, 0]},
    ),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("GlobalAveragePool", (X,), {}),
    ("BatchNormalization", (X, normal(4), normal(4) + 1, normal(4), np.abs(normal(4))), {}),
    (
        "BatchNormalization",
        (X, normal(4), normal(4) + 1, normal(4), np.abs(normal(4))),
        {"training_mode": 1},
    ),
    ("LayerNormalization", (X, normal(5), normal(5) + 1), {}),
    ("LayerNormalization", (X, normal(7, 5)), {"axis": 2, "epsilon": 0.25}),
    ("LayerNormalization", (X, normal(4, 1, 5), normal(5)), {"axis": -2}),
    ("GroupNormalization", (X, normal(4), normal(4) + 1), {"num_groups": 2}),
    ("RMSNormalization", (X, normal(5)), {"epsilon": 0.25}),
    ("RMSNormalization", (X, normal(4, 7, 5)), {"axis": -2}),
    ("Softmax", (X,), {"axis": 1}),
    ("LogSoftmax", (X,), {}),
    ("SoftmaxCrossEntropyLoss", (X, LABELS), {}),
    ("SoftmaxCrossEntropyLoss", (X, LABELS, np.abs(normal(4))), {"ignore_index": 2}),
    ("SoftmaxCrossEntropyLoss", (X, LABELS), {"reduction": "none"}),
    ("NegativeLogLikelihoodLoss", (X, LABELS, np.abs(normal(4))), {"reduction": "sum"}),
    ("NegativeLogLikelihoodLoss", (X, LABELS), {"ignore_index": 2}),
    *(
        (name, (X, ints(1, -1)), {"keepdims": k})
        for k in (0, 1)
        for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp")
    ),
    *(
        (name, (X,), {"noop_with_empty_axes": k})
        for k in (0, 1)
        for name in ("ReduceSum", "ReduceMean", "ReduceMax")
    ),
    ("ReduceLogSumExp", (X,), {}),
    ("Reshape", (X, ints(0, -1, 5)), {}),
    ("Transpose", (X,), {}),
    ("Transpose", (X,), {"perm": [0, 2, 3, 1]}),
    ("Concat", (normal(2, 3), normal(2, 5)), {"axis": -1}),
    ("Slice", (X, ints(1, -1), ints(100, -100), ints(2, -1), ints(2, -2)), {}),
    ("Slice", (X, ints(0, 3), ints(1, 1)), {}),
    ("Gather", (X, ints(1, -3, 0, 1).reshape(2, 2)), {"axis": 1}),
    ("Gather", (X, np.array(2)), {"axis": -1}),
    ("Pad", (X, ints(0, 0, 1, 2, 1, 0, 0, 1)), {}),
    ("Pad", (X, ints(1, 2, 0, 1), np.array(2.5), ints(1, -1)), {}),
    ("Pad", (X, ints(0, 0, 1, 2, 0, 0, 3, 1)), {"mode": "reflect"}),
    ("Pad", (X, ints(0, 1, 1, 2, 1, 0, 3, 1)), {"mode": "edge"}),
    ("Pad", (normal(3, 5), ints(0, 6, 1, 0)), {"mode": "wrap"}),
    ("Pad", (normal(3, 5), ints(1, 11, 5, 2)), {"mode": "reflect"}),
    ("Where", (normal(3, 1) > 0, normal(3, 5), normal(5)), {}),
    ("Expand", (normal(3, 1), ints(2, 1, 5)), {}),
    ("Expand", (normal(2, 3, 1), ints(1, 5)), {}),
    ("Attention", (normal(2, 4, 5, 3), normal(2, 2, 7, 3), normal(2, 2, 7, 6)), {}),
    (
        "Attention",
        (normal(2, 5, 12), normal(2, 7, 6), normal(2, 7, 4)),
        {"q_num_heads": 4, "kv_num_heads": 2, "scale": 0.3, "is_causal": 1},
    ),
    ("Attention", (normal(2, 4, 5, 3), normal(2, 4, 7, 3), normal(2, 4, 7, 6), normal(5, 7)), {}),
    (
        "Attention",
        (normal(2, 4, 5, 3), normal(2, 4, 7, 3), normal(2, 4, 7, 6), np.tri(5, 7, 3, dtype=bool)),
        {"is_causal": 1},
    ),
    (
        "Attention",
        (
            normal(2, 4, 5, 3),
            normal(2, 4, 5, 3),
            normal(2, 4, 5, 6),
            None,
            normal(2, 4, 2, 3),
            normal(2, 4, 2, 6),
        ),
        {"is_causal": 1},
    ),
    (
        "Attention",
        (normal(2, 4, 2, 3), normal(2, 4, 7, 3), normal(2, 4, 7, 6), None, None, None, ints(3, 6)),
        {"is_causal": 1},
    ),
]


def recurrent(name: str, gates: int, **given: Any) -> Any:
    """Calls of a recurrence in each direction: with everything, with weights alone."""
    for direction in ("forward", "reverse", "bidirectional"):
        d = 2 if direction == "bidirectional" else 1
        weights = normal(d, gates * 4, 2), normal(d, gates * 4, 4), normal(d, gates * 8)
        more = (None, normal(d, 3, 4), normal(d, 3, 4) + 1)[: 3 if name == "LSTM" else 2]
        given = {**given, "hidden_size": 4, "direction": direction}
        yield name, (SEQUENCE, *weights, *more), given
        yield name, (SEQUENCE, *weights[:2]), given


CALLS += [
    *recurrent("RNN", 1),
    *recurrent("LSTM", 4),
    *recurrent("GRU", 3),
    *recurrent("GRU", 3, linear_before_reset=1),
]
IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CALLS)]
