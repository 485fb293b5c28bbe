"""Forms that are functions of Keras: `keras.ops`, `keras.activations`, and layers that merge."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import keras

from d5test.backends.base import (
    FLOATS,
    UNDERIVED,
    Forms,
    Plan,
    Unsupported,
    padded,
    planned,
)
from d5test.backends.tensorflow.elementwise import SELU
from d5test.backends.tensorflow.framework import numbers, tf
from d5test.backends.tensorflow.indexing import (
    ARG,
    NO_GRADIENT,
    index_of,
    largest_last,
    shortened,
)
from d5test.backends.tensorflow.layers import (
    VALID,
    grouped,
    in_channels_last,
    over,
    spatial,
    whole_strides,
)
from d5test.backends.tensorflow.linear import refuse_overrun
from d5test.backends.tensorflow.movement import part, shape_of, sides_of, widths
from d5test.backends.tensorflow.sampling import method_of
from d5test.backends.tensorflow.types import cast
from d5test.backends.tensorflow.windows import kernel_first
from d5test.dtypes import EIGHT_BITS, FOUR_BITS, NAMES, WHOLE

ops, activations = keras.ops, keras.activations
UNKNOWN = (*FOUR_BITS, "float8_e4m3fnuz", "float8_e5m2fnuz")
"""Dtypes that Keras has not."""
forms = Forms()
HARD = 0.1666666716337204, 0.5
FUNCTIONS = {
    "Relu": (ops.relu, activations.relu),
    "Sigmoid": (ops.sigmoid, activations.sigmoid),
    "Tanh": (ops.tanh, activations.tanh),
    "Exp": (ops.exp, activations.exponential),
    "Log": (ops.log,),
    "Sqrt": (ops.sqrt,),
    "Erf": (ops.erf,),
    "Abs": (ops.abs, ops.absolute),
    "Neg": (ops.negative,),
    "Reciprocal": (ops.reciprocal,),
    "Sin": (ops.sin,),
    "Cos": (ops.cos,),
    "Tan": (ops.tan,),
    "Asin": (ops.arcsin,),
    "Acos": (ops.arccos,),
    "Atan": (ops.arctan,),
    "Sinh": (ops.sinh,),
    "Cosh": (ops.cosh,),
    "Asinh": (ops.arcsinh,),
    "Acosh": (ops.arccosh,),
    "Atanh": (ops.arctanh,),
    "Softsign": (ops.softsign, activations.softsign),
    "Floor": (ops.floor,),
    "Ceil": (ops.ceil,),
    "Round": (ops.round,),
    "Sign": (ops.sign,),
    "Identity": (ops.copy, activations.linear),
    "Softplus": (ops.softplus, activations.softplus),
    "Mish": (activations.mish,),
    "HardSwish": (ops.hard_silu, activations.hard_silu),
    "Add": (ops.add,),
    "Sub": (ops.subtract,),
    "Mul": (ops.multiply,),
    "Div": (ops.divide, ops.true_divide),
    "Where": (ops.where,),
}
"""Functions of the tensors alone."""


def named(function: Plan) -> str:
    """The name by which Keras' users know it."""
    home = "activations" if getattr(activations, function.__name__, None) is function else "ops"
    return f"keras.{home}.{function.__name__}"


for _operator, _functions in FUNCTIONS.items():
    forms.same(_operator, {named(f): f for f in _functions}, arithmetic="S")
for _operator, _function in {"Max": ops.maximum, "Min": ops.minimum}.items():
    forms.same(_operator, {named(_function): _function}, arithmetic="S", where={"inputs": 2})
for _function, _rank in ((partial(ops.tensordot, axes=1), 2), (ops.vdot, 1), (ops.dot, 2)):
    _name = named(getattr(_function, "func", _function))
    forms.same(
        "MatMul", {_name: _function}, arithmetic="S", where={"rank0": _rank, "rank1": _rank}
    )


def window(function: Plan, op: Any, size: Any) -> Plan:
    """A symmetric window, of Keras' own dtype."""
    (n,) = numbers(size)
    return lambda size: function(n)


@forms.add("EyeLike", "keras.ops.eye", gradient=UNDERIVED)
@planned
def eye(op: Any, x: Any) -> Plan:
    (n, m), dtype = x.shape, NAMES.get(op.dtype, x.dtype.name)
    return lambda x: ops.eye(n, m, op.k, dtype)


HAMMING = "https://keras.io/api/ops/numpy/#hamming-function"
for _operator, _function, _contract in (
    ("HammingWindow", ops.hamming, {"contract": "0.54 and 0.46", "source": HAMMING}),
    ("HannWindow", ops.hanning, {}),
):
    forms.add(
        _operator, named(_function), gradient=UNDERIVED, values=(0,), dtypes=("float32",),
        attributes={"periodic": (0,)}, **_contract,
    )(planned(partial(window, _function)))  # fmt: skip


@forms.add(
    "STFT", "keras.ops.stft", gradient=UNDERIVED, values=(1, 3), attributes={"onesided": (1,)},
    dtypes=("float64", "float32"),
)  # fmt: skip
@planned
def stft(op: Any, x: Any, step: Any, window: Any = None, *length: Any) -> Plan:
    n = numbers(length[0])[0] if length else window.shape[0]
    (hop,) = numbers(step)
    return lambda x, step, window=None, *length: ops.stack(
        ops.stft(x[..., 0], n, hop, n, window, center=False), -1
    )


SIX: Mapping[str, Any] = {
    "arithmetic": "S",
    "stopped": (1, 2),
    "constants": {1: 0.0, 2: 6.0},
    "where": {"inputs": 3, "present1": True, "present2": True},
}
"""What a row of a function has that clips between 0 and 6."""
forms.same("Clip", {"keras.ops.relu6": lambda x, low, high: ops.relu6(x)}, **SIX)


forms.same(
    "Swish",
    {named(f): f for f in (ops.silu, activations.silu)},
    arithmetic="S",
    attributes={"alpha": (1.0,)},
)


for _fmod, _function in enumerate((ops.mod, ops.fmod)):
    forms.same(
        "Mod",
        {named(_function): _function},
        attributes={"fmod": (_fmod,)},
        stopped=(1,),
        arithmetic="S",
    )


forms.same("Det", {named(ops.det): ops.det}, dtypes=("float64", "float32"))


def shrunk(function: Plan, op: Any, x: Any) -> Any:
    if function is not ops.hard_shrink and op.bias != op.lambd:
        raise Unsupported("keras.ops.soft_shrink has its threshold for a bias")
    return function(x, op.lambd)


forms.add("Shrink", "keras.ops.hard_shrink", arithmetic="S", attributes={"bias": (0.0,)})(
    partial(shrunk, ops.hard_shrink)
)
forms.add("Shrink", "keras.ops.soft_shrink", arithmetic="S")(partial(shrunk, ops.soft_shrink))


def with_attribute(function: Plan, name: str, op: Any, x: Any) -> Any:
    """`function` takes an attribute of the operator behind the tensor."""
    return function(x, getattr(op, name))


for _operator, _name, _functions in (
    ("LeakyRelu", "alpha", (ops.leaky_relu, activations.leaky_relu)),
    ("Elu", "alpha", (ops.elu, activations.elu)),
    ("Celu", "alpha", (ops.celu, activations.celu)),
    ("Softmax", "axis", (ops.softmax, activations.softmax)),
    ("LogSoftmax", "axis", (ops.log_softmax, activations.log_softmax)),
):
    for _function in _functions:
        forms.add(_operator, named(_function), arithmetic="S")(
            partial(with_attribute, _function, _name)
        )


def gelu(function: Plan, op: Any, x: Any) -> Any:
    return function(x, op.approximate == "tanh")


for _function in (ops.gelu, activations.gelu):
    forms.add("Gelu", named(_function), arithmetic="S")(partial(gelu, _function))
for _function in (ops.selu, activations.selu):  # of its constants float32 has ONNX's
    forms.same(
        "Selu", {named(_function): _function}, arithmetic="S", dtypes=FLOATS[1:],
        attributes={"alpha": SELU[:1], "gamma": SELU[1:]},
    )  # fmt: skip


for _function in (ops.hard_sigmoid, activations.hard_sigmoid):
    forms.same(
        "HardSigmoid", {named(_function): _function}, arithmetic="S", rounded_attributes=True,
        attributes={"alpha": HARD[:1], "beta": HARD[1:]},
    )  # fmt: skip


@forms.add(
    "Clip", "keras.ops.clip", arithmetic="S", stopped=(1, 2), values=(1, 2),
    where={"present1": True, "present2": True},
)  # fmt: skip
@planned
def clip(op: Any, x: Any, low: Any, high: Any) -> Plan:
    least, most = (float(tf.get_static_value(t)) for t in (low, high))
    if least > most:
        raise Unsupported("it gives the minimum where that is above the maximum")
    return lambda x, low, high: ops.clip(x, least, most)


def merged(cls: Any, op: Any, *inputs: Any) -> Plan:
    """A layer that broadcasts, but not along the first axis: it is given one sample."""
    layer, rank = cls(dtype=inputs[0].dtype.name), max(x.ndim for x in inputs)

    def call(*inputs: Any) -> Any:
        ones = [(1,) * (1 + rank - x.ndim) for x in inputs]
        samples = [tf.reshape(x, (*o, *x.shape)) for x, o in zip(inputs, ones, strict=True)]
        return layer(samples)[0]

    return call


for _operator, _cls in (
    ("Add", keras.layers.Add), ("Sum", keras.layers.Add), ("Sub", keras.layers.Subtract),
    ("Mul", keras.layers.Multiply), ("Max", keras.layers.Maximum), ("Min", keras.layers.Minimum),
):  # fmt: skip
    forms.add(_operator, f"keras.layers.{_cls.__name__}", arithmetic="S", where={"inputs": 2})(
        planned(partial(merged, _cls))
    )


def over_list(cls: Any, inputs: Sequence[Any], **options: Any) -> Plan:
    """A layer whose inputs are one list."""
    layer = cls(dtype=inputs[0].dtype.name, **options)
    return lambda *inputs: layer(inputs)


def reduced(function: Plan, op: Any, x: Any, axes: Any = None) -> Plan:
    """`function` has `axis` and `keepdims`."""
    chosen = [] if axes is None else numbers(axes)
    axis, keepdims = tuple(chosen) or None, bool(op.keepdims)
    return lambda x, axes=None: function(x, axis=axis, keepdims=keepdims)


for _operator, _function in {
    "ReduceSum": ops.sum, "ReduceMean": ops.mean, "ReduceMax": ops.max,
    "ReduceMin": ops.min, "ReduceProd": ops.prod, "ReduceLogSumExp": ops.logsumexp,
}.items():  # fmt: skip
    forms.add(
        _operator, named(_function), arithmetic="S", values=(1,),
        attributes={"noop_with_empty_axes": (0,)},
    )(planned(partial(reduced, _function)))  # fmt: skip


def cumulative(function: Plan, op: Any, x: Any, axis: Any) -> Plan:
    (over,) = numbers(axis)
    return lambda x, axis: function(x, over)


for _operator, _function in (("CumSum", ops.cumsum), ("CumProd", ops.cumprod)):
    forms.add(
        _operator, named(_function), arithmetic="S", values=(1,),
        attributes={"exclusive": (0,), "reverse": (0,)},
    )(planned(partial(cumulative, _function)))  # fmt: skip


forms.add("Einsum", "keras.ops.einsum", arithmetic="S")(
    planned(lambda op, *inputs: partial(ops.einsum, op.equation.replace(" ", "")))
)
forms.add("Concat", "keras.ops.concatenate")(
    lambda op, *inputs: ops.concatenate(inputs, axis=op.axis)
)
forms.add("Concat", "keras.layers.Concatenate", where={"rank0": {"min": 2}})(
    planned(lambda op, *inputs: over_list(keras.layers.Concatenate, inputs, axis=op.axis))
)


@forms.add("MatMul", "keras.ops.matmul", arithmetic="S")
@planned
def matmul(op: Any, a: Any, b: Any) -> Plan:
    if b.ndim > 2:  # else Keras folds the batches into one matrix
        refuse_overrun(a, b)
    function: Plan = ops.matmul
    return function


@forms.add("MatMul", "keras.layers.Dot", arithmetic="S", where={"rank0": 3, "rank1": 3})
@planned
def dot(op: Any, x: Any, y: Any) -> Plan:
    if x.shape[0] != y.shape[0]:
        raise Unsupported("keras.layers.Dot does not broadcast")
    return over_list(keras.layers.Dot, (x, y), axes=(2, 1))


forms.add("Transpose", "keras.ops.transpose")(lambda op, x: ops.transpose(x, op.perm))
forms.add("Gather", "keras.ops.take", arithmetic="S")(
    lambda op, x, indices: ops.take(x, indices, axis=op.axis)
)


@forms.add("GatherElements", "keras.ops.take_along_axis", arithmetic="S")
@planned
def take_along_axis(op: Any, x: Any, indices: Any) -> Plan:
    axis = op.axis % x.ndim
    part = shortened(x, indices, axis)
    return lambda x, indices: ops.take_along_axis(x[part], indices, axis)


@forms.add("Cast", "keras.ops.cast")
@planned
def cast_by_keras(op: Any, x: Any) -> Plan:
    if (to := NAMES[op.to]) in UNKNOWN:
        raise Unsupported(f"Keras has no dtype {to}")
    return cast(ops.cast, op, x)


@forms.add("ConstantOfShape", "keras.ops.full", values=(0,), gradient=UNDERIVED)
@planned
def full(op: Any, shape: Any) -> Plan:
    name, _, (number,) = op.value
    return lambda shape: ops.full(shape, number, name)


@forms.add("BitCast", "keras.ops.view", gradient=UNDERIVED)
def view(op: Any, x: Any) -> Any:
    if {NAMES[op.to], x.dtype.name} & {*EIGHT_BITS}:
        raise Unsupported("Keras has no floating-point numbers of 8 bits here")
    return ops.view(x, NAMES[op.to])


@forms.add("TopK", "keras.ops.top_k", values=(1,))
@planned
def top_k(op: Any, x: Any, k: Any) -> Plan:
    n = largest_last(op, x, k)
    return lambda x, k: tuple(ops.top_k(x, n))


for _operator, _function in (("ArgMax", ops.argmax), ("ArgMin", ops.argmin)):
    forms.add(_operator, f"keras.ops.{_function.__name__}", gradient=NO_GRADIENT, **ARG)(
        partial(index_of, _function)
    )


@forms.add("Reshape", "keras.ops.reshape", values=(1,))
@planned
def reshape(op: Any, x: Any, shape: Any) -> Plan:
    sides = shape_of(op, x, shape)
    return lambda x, shape: ops.reshape(x, sides)


@forms.add("Expand", "keras.ops.broadcast_to", arithmetic="S", values=(1,))
@planned
def broadcast(op: Any, x: Any, shape: Any) -> Plan:
    sides = sides_of(x, shape)
    return lambda x, shape: ops.broadcast_to(x, sides)


@forms.add("Tile", "keras.ops.tile", arithmetic="S", values=(1,))
@planned
def tile(op: Any, x: Any, repeats: Any) -> Plan:
    times = numbers(repeats)
    return lambda x, repeats: ops.tile(x, times)


@forms.add("Squeeze", "keras.ops.squeeze", values=(1,))
@planned
def squeeze(op: Any, x: Any, axes: Any = None) -> Plan:
    axis = None if axes is None else tuple(numbers(axes))
    return lambda x, axes=None: ops.squeeze(x, axis)


@forms.add("Unsqueeze", "keras.ops.expand_dims", values=(1,))
@planned
def unsqueeze(op: Any, x: Any, axes: Any) -> Plan:
    axis = tuple(numbers(axes))
    return lambda x, axes: ops.expand_dims(x, axis)


@forms.add("Trilu", "keras.ops.tril, triu", arithmetic="S", values=(1,))
@planned
def trilu(op: Any, x: Any, k: Any = None) -> Plan:
    (diagonal,) = [0] if k is None else numbers(k)
    function = ops.triu if op.upper else ops.tril
    return lambda x, k=None: function(x, diagonal)


@forms.add("Pad", "keras.ops.pad", arithmetic="S", values=(1, 3))
@planned
def pad(op: Any, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Plan:
    sides = widths(x, pads, axes)
    if op.mode not in ("constant", "reflect") or min(map(min, sides), default=0) < 0:
        raise Unsupported("keras.ops.pad neither crops nor repeats the edge")
    if op.mode == "reflect":
        return lambda x, *_: ops.pad(x, sides, "reflect")
    return lambda x, pads, value=None, axes=None: ops.pad(
        x, sides, constant_values=0 if value is None else tf.reshape(value, ())
    )


@forms.add("Slice", "keras.ops.slice", values=(1, 2, 3, 4))
@planned
def slices(op: Any, x: Any, *arguments: Any) -> Plan:
    begin, end, stride = part(x, *padded(arguments, 4))
    if any(s != 1 for s in stride):
        raise Unsupported("keras.ops.slice has no steps")
    shape = [max(e - b, 0) for b, e in zip(begin, end, strict=True)]
    return lambda x, *_: ops.slice(x, begin, shape)


@forms.add("Split", "keras.ops.split", values=(1,), where={"inputs": 2})
@planned
def split(op: Any, x: Any, sizes: Any) -> Plan:
    *sides, _ = numbers(sizes)
    if not sides:
        raise Unsupported("keras.ops.split cuts at least once")
    places = [sum(sides[: i + 1]) for i in range(len(sides))]
    return lambda x, sizes: tuple(ops.split(x, places, op.axis))


@forms.add(
    "BatchNormalization", "keras.ops.batch_normalization", arithmetic="S",
    attributes={"training_mode": (0,)},
)  # fmt: skip
@planned
def batch_normalization(op: Any, x: Any, *_: Any) -> Plan:
    dtype, epsilon = x.dtype, op.epsilon

    def call(x: Any, *parameters: Any) -> Any:
        scale, b, mean, var = (tf.cast(p, dtype) for p in parameters)
        return ops.batch_normalization(x, mean, var, 1, b, scale, epsilon)

    return call


@forms.add("LayerNormalization", "keras.ops.layer_normalization", outputs=1, arithmetic="S")
@planned
def layer_normalization(op: Any, x: Any, scale: Any, b: Any = None) -> Plan:
    axes = over(op, x, scale, b)
    return lambda x, scale, b=None: ops.layer_normalization(x, scale, b, axes, op.epsilon)


@forms.add("RMSNormalization", "keras.ops.rms_normalization", arithmetic="S")
@planned
def rms_normalization(op: Any, x: Any, scale: Any) -> Plan:
    axes = over(op, x, scale)
    return lambda x, scale: ops.rms_normalization(x, scale, axes, op.epsilon)


@forms.add("Conv", "keras.ops.conv", arithmetic="S", attributes=VALID)
@planned
def conv(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    at, order = grouped(op, x, w), kernel_first(x.ndim - 2)

    def call(x: Any, w: Any, b: Any = None) -> Any:
        y = ops.conv(x, tf.transpose(w, order), at.strides, "valid", None, at.dilations)
        return y if b is None else ops.add(y, b)

    return in_channels_last(call, x)


@forms.add(
    "ConvTranspose", "keras.ops.conv_transpose", arithmetic="S",
    attributes={**VALID, "group": (1,), "output_padding": (None,), "output_shape": (None,)},
)  # fmt: skip
@planned
def conv_transpose(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    at, order = whole_strides(op, x, w), kernel_first(x.ndim - 2)

    def call(x: Any, w: Any, b: Any = None) -> Any:
        kernel = tf.transpose(w, order)
        y = ops.conv_transpose(x, kernel, at.strides, "valid", dilation_rate=at.dilations)
        return y if b is None else ops.add(y, b)

    return in_channels_last(call, x)


def pool(function: Plan, op: Any, x: Any) -> Plan:
    at = spatial(op, x, op.kernel_shape)
    if max(at.dilations) > 1:
        raise Unsupported("Keras' poolings have no dilations")
    return in_channels_last(lambda x: function(x, at.kernel, at.strides, "valid"), x)


forms.add("MaxPool", "keras.ops.max_pool", outputs=1, arithmetic="S", attributes=VALID)(
    planned(partial(pool, ops.max_pool))
)
forms.add("AveragePool", "keras.ops.average_pool", arithmetic="S", attributes=VALID)(
    planned(partial(pool, ops.average_pool))
)


@forms.add("Resize", "keras.ops.image.resize", dtypes=("float32",), values=(1, 2, 3))
@planned
def resize(op: Any, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Plan:
    method, antialias, size = method_of(op, x, scales, sizes)
    how = {"interpolation": method, "antialias": antialias, "data_format": "channels_first"}
    return lambda x, *_: ops.image.resize(x, size, **how)


for _operator, _named in forms.items():
    # keras.backend.result_type makes uint32 of uint64, and true division makes floats
    _promotes = WHOLE if _operator == "Div" else ("uint64",)
    forms[_operator] = {n: replace(row, promotes=_promotes) for n, row in _named.items()}
