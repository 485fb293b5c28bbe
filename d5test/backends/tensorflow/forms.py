"""How else TensorFlow's users write an operator's call: by Keras, by Python's operators."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import keras

from d5test.backends.base import FAMILIES, Forms, Plan, Row, Table, Unsupported, planned
from d5test.backends.tensorflow import layers
from d5test.backends.tensorflow.framework import integers, tf

forms = Forms()
KERAS = {
    "Relu": keras.ops.relu,
    "Sigmoid": keras.ops.sigmoid,
    "Tanh": keras.ops.tanh,
    "Exp": keras.ops.exp,
    "Log": keras.ops.log,
    "Sqrt": keras.ops.sqrt,
    "Erf": keras.ops.erf,
    "Abs": keras.ops.abs,
    "Neg": keras.ops.negative,
    "Reciprocal": keras.ops.reciprocal,
    "Softplus": keras.ops.softplus,
    "HardSwish": keras.ops.hard_silu,
    "Add": keras.ops.add,
    "Sub": keras.ops.subtract,
    "Mul": keras.ops.multiply,
    "MatMul": keras.ops.matmul,
}
"""Functions of the tensors alone."""

for _operator, _function in KERAS.items():
    forms.same(_operator, {f"keras.ops.{_function.__name__}": _function}, arithmetic="S")
for _operator, _function in {"Max": keras.ops.maximum, "Min": keras.ops.minimum}.items():
    _named = {f"keras.ops.{_function.__name__}": _function}
    forms.same(_operator, _named, arithmetic="S", where={"inputs": 2})
forms.same("Neg", {"-x": lambda x: -x}, arithmetic="F")
for _operator, _sign, _function in (
    ("Add", "+", lambda a, b: a + b), ("Sub", "-", lambda a, b: a - b),
    ("Mul", "*", lambda a, b: a * b),
):  # fmt: skip
    forms.same(_operator, {f"a {_sign} b": _function}, arithmetic="S")


def with_number(function: Plan, number: float, x: Any, other: Any) -> Any:
    """`function` takes the number that stands in all of `other`."""
    if tf.broadcast_static_shape(x.shape, other.shape) != x.shape:
        raise Unsupported("a number has no shape that the result could take")
    return function(x, number)


for _operator, _sign, _function, _number in (
    ("Add", "+", lambda x, n: x + n, 0.75), ("Mul", "*", lambda x, n: x * n, 0.3),
    ("Div", "/", lambda x, n: x / n, 3.0), ("Pow", "**", lambda x, n: x**n, 2.0),
    ("Pow", "**", lambda x, n: x**n, 3.0),
):  # fmt: skip
    forms.same(
        _operator,
        {f"x {_sign} {_number}": partial(with_number, _function, _number)},
        arithmetic="S",
        constants={1: _number},
    )

forms.add("LeakyRelu", "keras.ops.leaky_relu", arithmetic="S")(
    lambda op, x: keras.ops.leaky_relu(x, op.alpha)
)
forms.add("Elu", "keras.ops.elu", arithmetic="S")(lambda op, x: keras.ops.elu(x, op.alpha))
forms.add("Celu", "keras.ops.celu", arithmetic="S")(lambda op, x: keras.ops.celu(x, op.alpha))
forms.add("Gelu", "keras.ops.gelu", arithmetic="S")(
    lambda op, x: keras.ops.gelu(x, op.approximate == "tanh")
)


def along_axis(function: Plan, op: Any, x: Any) -> Any:
    return function(x, axis=op.axis)


for _operator, _function in {
    "Softmax": keras.ops.softmax,
    "LogSoftmax": keras.ops.log_softmax,
}.items():
    forms.add(_operator, f"keras.ops.{_function.__name__}", arithmetic="S")(
        partial(along_axis, _function)
    )


def reduced(function: Plan, op: Any, x: Any, axes: Any = None) -> Plan:
    """`function` has `axis` and `keepdims`."""
    chosen = [] if axes is None else integers(axes)
    axis, keepdims = tuple(chosen) or None, bool(op.keepdims)
    return lambda x, axes=None: function(x, axis=axis, keepdims=keepdims)


for _operator, _function in {
    "ReduceSum": keras.ops.sum,
    "ReduceMean": keras.ops.mean,
    "ReduceMax": keras.ops.max,
    "ReduceLogSumExp": keras.ops.logsumexp,
}.items():
    forms.add(
        _operator,
        f"keras.ops.{_function.__name__}",
        arithmetic="S",
        values=(1,),
        attributes={"noop_with_empty_axes": (0,)},
    )(planned(partial(reduced, _function)))

forms.same(
    "MatMul",
    {
        "a @ b": lambda a, b: a @ b,
        "tf.tensordot": lambda a, b: tf.tensordot(a, b, 1),
        "tf.einsum": lambda a, b: tf.einsum("ik,kj->ij", a, b),
        "tf.matmul(transpose_b=True)": lambda a, b: tf.matmul(
            a, tf.transpose(b), transpose_b=True
        ),
    },
    arithmetic="S",
    where={"rank0": 2, "rank1": 2},
)
forms.same(
    "MatMul",
    {"tf.linalg.matvec": tf.linalg.matvec},
    arithmetic="S",
    where={"rank0": 2, "rank1": 1},
)


def dense(op: Any, x: Any, kernel: Any, bias: Any) -> Plan:
    if bias.shape != kernel.shape[1:]:
        raise Unsupported("a dense layer has one bias for each output")

    def call(x: Any, kernel: Any, bias: Any) -> Any:
        return tf.nn.bias_add(tf.matmul(x, kernel), bias)

    return call


forms.add(
    "Gemm",
    "tf.nn.bias_add",
    arithmetic="S",
    attributes={"transA": (0,), "transB": (0,), "alpha": (1.0,), "beta": (1.0,)},
    where={"rank2": 1},
)(planned(dense))


def asked_twice(row: Row, op: Any, *inputs: Any) -> Any:
    """The row, whose gradient is the second that a persistent tape gives."""
    places = [i for i, x in enumerate(inputs) if x is not None and x.dtype.is_floating]

    def function(*given: Any) -> Any:
        given = tuple(map(tf.identity, given))  # of one tensor given twice each has its part
        xs = list(inputs)
        for i, x in zip(places, given, strict=True):
            xs[i] = x
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(given)
            y = row.call(op, *xs)
        results = y if isinstance(y, (list, tuple)) else (y,)

        def pull(*upstream: Any) -> Any:
            flows = [(r, dy) for r, dy in zip(results, upstream, strict=True)
                     if r.dtype.is_floating]  # fmt: skip
            targets, grads = zip(*flows, strict=True)
            for _ in range(2):
                slopes = tape.gradient(targets, given, grads, unconnected_gradients="zero")
            return slopes

        return y, pull

    return tf.custom_gradient(function)(*(inputs[i] for i in places))


def of_rows(rows: Mapping[str, Row]) -> Forms:
    """Every row that has a gradient, under a tape that is asked twice."""
    name = "tf.GradientTape(persistent=True)"
    return Forms(
        {
            operator: {name: replace(row, call=partial(asked_twice, row))}
            for operator, row in rows.items()
            if not row.gradient
        }
    )


_FAMILIES = [family for family in FAMILIES if family != "optimizers"]
forms = forms.merged(layers.forms)
forms = forms.merged(of_rows(Table.of("d5test.backends.tensorflow", _FAMILIES)))
