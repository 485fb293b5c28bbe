"""How else TensorFlow's users write an operator's call: by Keras, by Python's operators."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from d5test.backends.base import FAMILIES, UNDERIVED, Forms, Plan, Row, Table, Unsupported, planned
from d5test.backends.tensorflow import depthwise, keras_ops, layers
from d5test.backends.tensorflow.framework import numbers, tf
from d5test.backends.tensorflow.layers import in_channels_last
from d5test.backends.tensorflow.windows import kernel_first, padding, refuse_overrun
from d5test.backends.windows import Windows

forms = Forms()
forms.same("Neg", {"-x": lambda x: -x}, arithmetic="F")
forms.same("Clip", {"tf.nn.relu6": lambda x, low, high: tf.nn.relu6(x)}, **keras_ops.SIX)
for _operator, _sign, _function in (
    ("Add", "+", lambda a, b: a + b), ("Sub", "-", lambda a, b: a - b),
    ("Mul", "*", lambda a, b: a * b),
):  # fmt: skip
    forms.same(_operator, {f"a {_sign} b": _function}, arithmetic="S")

for _operator, _sign, _function in (
    ("Equal", "==", lambda a, b: a == b), ("Greater", ">", lambda a, b: a > b),
    ("GreaterOrEqual", ">=", lambda a, b: a >= b), ("Less", "<", lambda a, b: a < b),
    ("LessOrEqual", "<=", lambda a, b: a <= b),
):  # fmt: skip
    forms.same(_operator, {f"a {_sign} b": _function}, gradient="booleans have none")


@forms.add("ConstantOfShape", "tf.constant(shape=)", values=(0,), gradient=UNDERIVED)
@planned
def full(op: Any, shape: Any) -> Plan:
    name, _, (number,) = op.value
    sides = numbers(shape)
    return lambda shape: tf.constant(number, name, sides)


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


def by_rank(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    """`tf.nn.conv1d`, `conv2d` or `conv3d`, without groups."""
    n = w.ndim - 2
    at = Windows.of(op, x.shape[2:], w.shape[2:])
    refuse_overrun(at, op.group, x.shape[1], x)
    pad, kernel = padding(at.pads), kernel_first(n)
    around = (lambda each: each) if n < 3 else (lambda each: (1, *each, 1))
    function = (tf.nn.conv1d, tf.nn.conv2d, tf.nn.conv3d)[n - 1]
    if max(at.dilations) > 1 and (n == 3 or (n == 1 and max(at.strides) > 1)):
        raise Unsupported("TensorFlow has no dilations here")

    def call(x: Any, w: Any, b: Any = None) -> Any:
        y = function(
            pad(x), tf.transpose(w, kernel), around(at.strides), "VALID",
            dilations=around(at.dilations),
        )  # fmt: skip
        return y if b is None else tf.nn.bias_add(y, b)

    return in_channels_last(call, x)


for _n in (1, 2, 3):
    forms.add(
        "Conv", f"tf.nn.conv{_n}d", arithmetic="S", attributes={"group": (1,)},
        where={"rank0": _n + 2},
    )(planned(by_rank))  # fmt: skip


def pooled(function: Plan, op: Any, x: Any) -> Plan:
    """`function` has neither pads nor dilations of its own."""
    at = Windows.of(op, x.shape[2:], op.kernel_shape)
    if any(map(any, at.covering)) or max(at.dilations) > 1:
        raise Unsupported("this form has neither pads nor dilations")
    return in_channels_last(lambda x: function(x, at.kernel, at.strides, "VALID"), x)


for _operator, _functions in {
    "MaxPool": (tf.nn.max_pool1d, tf.nn.max_pool2d, tf.nn.max_pool3d),
    "AveragePool": (tf.nn.avg_pool1d, tf.nn.avg_pool2d, tf.nn.avg_pool3d),
}.items():
    for _n, _function in enumerate(_functions, 1):
        forms.add(
            _operator, f"tf.nn.{_function.__name__}", arithmetic="S", outputs=1,
            attributes={"pads": (None,), "auto_pad": ("VALID",)}, where={"rank0": _n + 2},
        )(planned(partial(pooled, _function)))  # fmt: skip


def asked_twice(row: Row, op: Any, *inputs: Any) -> Any:
    """The row, whose gradient is the second that a persistent tape gives, after another."""
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
            tape.gradient(targets, given, tuple(map(tf.ones_like, grads)))
            return tape.gradient(targets, given, grads, unconnected_gradients="zero")

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
forms = forms.merged(keras_ops.forms).merged(layers.forms).merged(depthwise.forms)
forms = forms.merged(of_rows(Table.of("d5test.backends.tensorflow", _FAMILIES)))
