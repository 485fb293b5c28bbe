"""Forms that are Keras' layers, with the operator's inputs in place of their weights."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras

from d5test.backends.base import Forms, Plan, Unsupported, padded, planned
from d5test.backends.tensorflow.framework import channels_last, channels_second, tf
from d5test.backends.tensorflow.windows import has_groups, kernel_first, refuse_overrun
from d5test.backends.windows import Windows

forms = Forms()
CONV = {3: keras.layers.Conv1D, 4: keras.layers.Conv2D, 5: keras.layers.Conv3D}
CONV_TRANSPOSE = {
    3: keras.layers.Conv1DTranspose,
    4: keras.layers.Conv2DTranspose,
    5: keras.layers.Conv3DTranspose,
}
MAX_POOL = {3: keras.layers.MaxPool1D, 4: keras.layers.MaxPool2D, 5: keras.layers.MaxPool3D}
AVERAGE_POOL = {
    3: keras.layers.AveragePooling1D,
    4: keras.layers.AveragePooling2D,
    5: keras.layers.AveragePooling3D,
}
GLOBAL_POOL = {
    3: keras.layers.GlobalAveragePooling1D,
    4: keras.layers.GlobalAveragePooling2D,
    5: keras.layers.GlobalAveragePooling3D,
}
GLOBAL_MAX_POOL = {
    3: keras.layers.GlobalMaxPooling1D,
    4: keras.layers.GlobalMaxPooling2D,
    5: keras.layers.GlobalMaxPooling3D,
}


def by_rank(layers: dict[int, Any], x: Any) -> Any:
    if x.ndim not in layers:
        raise Unsupported(f"Keras has no such layer for {x.ndim} axes")
    return layers[x.ndim]


def run(layer: Any, weights: Sequence[Any], *inputs: Any, **options: Any) -> Any:
    """What a layer computes with these weights, in its order; `None` for one that it has not."""
    present = [w for w in weights if w is not None]
    state = [v.value for v in layer.non_trainable_variables]
    outputs, _ = layer.stateless_call(present, state, *inputs, **options)
    return outputs


def built(layer: Any, *shapes: Any) -> Any:
    """The layer, made for inputs of these shapes."""
    layer.build(*shapes)
    return layer


def activation(name: str, op: Any, x: Any) -> Plan:
    layer: Plan = keras.layers.Activation(name, dtype=x.dtype.name)
    return layer


for _operator, _name in {
    "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exponential", "Softplus": "softplus",
    "Mish": "mish", "HardSwish": "hard_silu",
}.items():  # fmt: skip
    forms.add(_operator, f'keras.layers.Activation("{_name}")', arithmetic="S")(
        planned(partial(activation, _name))
    )


@forms.add("Relu", "keras.layers.ReLU", arithmetic="S")
@planned
def relu(op: Any, x: Any) -> Plan:
    layer: Plan = keras.layers.ReLU(dtype=x.dtype.name)
    return layer


@forms.add("LeakyRelu", "keras.layers.LeakyReLU", arithmetic="S")
@planned
def leaky_relu(op: Any, x: Any) -> Plan:
    if op.alpha < 0:
        raise Unsupported("Keras has no negative slope")
    layer: Plan = keras.layers.LeakyReLU(op.alpha, dtype=x.dtype.name)
    return layer


@forms.add("Elu", "keras.layers.ELU", arithmetic="S")
@planned
def elu(op: Any, x: Any) -> Plan:
    layer: Plan = keras.layers.ELU(op.alpha, dtype=x.dtype.name)
    return layer


@forms.add("PRelu", "keras.layers.PReLU", arithmetic="S", where={"rank0": {"min": 2}})
@planned
def prelu(op: Any, x: Any, slope: Any) -> Plan:
    if (1,) * (x.ndim - slope.ndim) + tuple(slope.shape) != (1, *x.shape[1:]):
        raise Unsupported("keras.layers.PReLU has one slope for each element of a sample")
    layer = built(keras.layers.PReLU(dtype=x.dtype.name), x.shape)
    return lambda x, slope: run(layer, [tf.reshape(slope, x.shape[1:])], x)


def along_axis(cls: Any, op: Any, x: Any) -> Plan:
    layer: Plan = cls(op.axis, dtype=x.dtype.name)
    return layer


forms.add("Softmax", "keras.layers.Softmax", arithmetic="S")(
    planned(partial(along_axis, keras.layers.Softmax))
)


@forms.add(
    "Gemm", "keras.layers.Dense", arithmetic="S", where={"rank2": 1},
    attributes={"transA": (0,), "transB": (0,), "alpha": (1.0,), "beta": (1.0,)},
)  # fmt: skip
@planned
def dense(op: Any, x: Any, kernel: Any, bias: Any) -> Plan:
    if bias.shape != kernel.shape[1:]:
        raise Unsupported("a dense layer has one bias for each output")
    layer = built(keras.layers.Dense(kernel.shape[1], dtype=x.dtype.name), x.shape)
    return lambda x, kernel, bias: run(layer, [kernel, bias], x)


@forms.add(
    "MatMul", "keras.layers.Dense(use_bias=False)", arithmetic="S",
    where={"rank0": {"min": 2}, "rank1": 2},
)  # fmt: skip
@planned
def without_bias(op: Any, x: Any, kernel: Any) -> Plan:
    dtype = x.dtype.name
    layer = built(keras.layers.Dense(kernel.shape[1], use_bias=False, dtype=dtype), x.shape)
    return lambda x, kernel: run(layer, [kernel], x)


@forms.add(
    "Gather", "keras.layers.Embedding", arithmetic="S", attributes={"axis": (0,)},
    where={"rank0": 2},
)  # fmt: skip
@planned
def embedding(op: Any, x: Any, indices: Any) -> Plan:
    """Its indices count from the front alone."""
    layer = built(keras.layers.Embedding(*x.shape, dtype=x.dtype.name))
    return lambda x, indices: run(layer, [x], indices % x.shape[0])


def spatial(op: Any, x: Any, kernel: Any) -> Windows:
    """The windows, if none of them reaches beyond the input."""
    at = Windows.of(op, tuple(x.shape[2:]), tuple(kernel))
    if any(map(any, at.pads)) or at.ceil:
        raise Unsupported("this form has no pads")
    if max(at.strides) > 1 and max(at.dilations) > 1:
        raise Unsupported("Keras has no strides together with dilations")
    return at


def in_channels_last(function: Plan, x: Any) -> Plan:
    """`function` of x (n, ..., c), on x (n, c, ...)."""
    last, second = channels_last(x.ndim), channels_second(x.ndim)
    return lambda x, *rest: tf.transpose(function(tf.transpose(x, last), *rest), second)


VALID = {"auto_pad": ("VALID",), "pads": (None,)}


def grouped(op: Any, x: Any, w: Any) -> Windows:
    """The windows of a convolution, if TensorFlow differentiates its groups."""
    if op.group > 1 and (x.ndim == 5 or not has_groups(x.dtype)):
        raise Unsupported("TensorFlow differentiates no groups here")
    at = spatial(op, x, w.shape[2:])
    refuse_overrun(at, op.group, x.shape[1], x)
    return at


@forms.add("Conv", "keras.layers.Conv1D, 2D, 3D", arithmetic="S", attributes=VALID)
@planned
def conv(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    at, order = grouped(op, x, w), kernel_first(x.ndim - 2)
    layer = by_rank(CONV, x)(
        w.shape[0], at.kernel, at.strides, dilation_rate=at.dilations, groups=op.group,
        use_bias=b is not None, dtype=x.dtype.name,
    )  # fmt: skip
    built(layer, (x.shape[0], *x.shape[2:], x.shape[1]))
    return in_channels_last(lambda x, w, b=None: run(layer, [tf.transpose(w, order), b], x), x)


def whole_strides(op: Any, x: Any, w: Any) -> Windows:
    """The windows of a transposed convolution, if they leave no gaps."""
    at = spatial(op, x, w.shape[2:])
    axes = zip(at.kernel, at.dilations, at.strides, strict=True)
    if w.shape[0] != x.shape[1] or any((k - 1) * d + 1 < s for k, d, s in axes):
        raise Unsupported("Keras writes a whole stride where the kernel is shorter")
    return at


@forms.add(
    "ConvTranspose", "keras.layers.Conv1DTranspose, 2D, 3D", arithmetic="S",
    attributes={**VALID, "group": (1,), "output_padding": (None,), "output_shape": (None,)},
)  # fmt: skip
@planned
def conv_transpose(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    at, order = whole_strides(op, x, w), kernel_first(x.ndim - 2)
    layer = by_rank(CONV_TRANSPOSE, x)(
        w.shape[1], at.kernel, at.strides, dilation_rate=at.dilations, use_bias=b is not None,
        dtype=x.dtype.name,
    )  # fmt: skip
    built(layer, (x.shape[0], *x.shape[2:], x.shape[1]))
    return in_channels_last(lambda x, w, b=None: run(layer, [tf.transpose(w, order), b], x), x)


def pool(layers: dict[int, Any], op: Any, x: Any) -> Plan:
    at = spatial(op, x, op.kernel_shape)
    if max(at.dilations) > 1:
        raise Unsupported("Keras' poolings have no dilations")
    return in_channels_last(by_rank(layers, x)(at.kernel, at.strides, dtype=x.dtype.name), x)


forms.add(
    "MaxPool", "keras.layers.MaxPool1D, 2D, 3D", outputs=1, arithmetic="S", attributes=VALID
)(planned(partial(pool, MAX_POOL)))
forms.add(
    "AveragePool", "keras.layers.AveragePooling1D, 2D, 3D", arithmetic="S", attributes=VALID
)(planned(partial(pool, AVERAGE_POOL)))


def global_pool(layers: dict[int, Any], op: Any, x: Any) -> Plan:
    return in_channels_last(by_rank(layers, x)(keepdims=True, dtype=x.dtype.name), x)


for _name, _layers in (("Average", GLOBAL_POOL), ("Max", GLOBAL_MAX_POOL)):
    forms.add(
        f"Global{_name}Pool", f"keras.layers.Global{_name}Pooling1D, 2D, 3D", arithmetic="S"
    )(planned(partial(global_pool, _layers)))


@forms.add("BatchNormalization", "keras.layers.BatchNormalization", arithmetic="S")
@planned
def batch_normalization(op: Any, x: Any, *_: Any) -> Plan:
    """Its running variance is the biased one, as ONNX has it; it is in the dtype of the layer."""
    training = bool(op.training_mode)
    layer = keras.layers.BatchNormalization(1, op.momentum, op.epsilon, dtype=x.dtype.name)
    built(layer, x.shape)

    def call(x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
        given = scale, b, mean, var
        values = [tf.cast(p, x.dtype) for p in given]
        y, kept = layer.stateless_call(values[:2], values[2:], x, training=training)
        return (
            (y, *(tf.cast(k, p.dtype) for k, p in zip(kept, given[2:], strict=True)))
            if (training)
            else y
        )

    return call


def over(op: Any, x: Any, *parameters: Any) -> list[int]:
    """The axes that are normalised over, which the parameters have."""
    shape = tuple(x.shape[op.axis :])
    if any(p is not None and tuple(p.shape) != shape for p in parameters):
        raise Unsupported("the parameters have the shape that is normalised over")
    return list(range(op.axis % x.ndim, x.ndim))


@forms.add("LayerNormalization", "keras.layers.LayerNormalization", outputs=1, arithmetic="S")
@planned
def layer_normalization(op: Any, x: Any, scale: Any, b: Any = None) -> Plan:
    layer = keras.layers.LayerNormalization(
        over(op, x, scale, b), op.epsilon, center=b is not None, dtype=x.dtype.name
    )
    built(layer, x.shape)
    return lambda x, scale, b=None: run(layer, [scale, b], x)


@forms.add(
    "RMSNormalization", "keras.layers.RMSNormalization", arithmetic="S", attributes={"axis": (-1,)}
)
@planned
def rms_normalization(op: Any, x: Any, scale: Any) -> Plan:
    over(op, x, scale)
    layer = built(keras.layers.RMSNormalization(-1, op.epsilon, dtype=x.dtype.name), x.shape)
    return lambda x, scale: run(layer, [scale], x)


@forms.add("GroupNormalization", "keras.layers.GroupNormalization", arithmetic="S")
@planned
def group_normalization(op: Any, x: Any, scale: Any, bias: Any) -> Plan:
    layer = keras.layers.GroupNormalization(op.num_groups, 1, op.epsilon, dtype=x.dtype.name)
    built(layer, x.shape)
    return lambda x, scale, bias: run(layer, [scale, bias], x)


def recurrent(
    cls: Any, gates: Sequence[int], states: int, options: dict[str, Any], op: Any, *inputs: Any
) -> tuple[Any, ...]:
    """A layer in one direction; `gates` are ONNX's, in Keras' order."""
    x, w, r, b, lens, *rest = padded(inputs, 8)
    starts, peepholes = rest[:states], rest[states] if states == 2 else None
    if lens is not None or peepholes is not None or w.shape[0] > 1:
        raise Unsupported("the layer has neither lengths nor peepholes, and one direction")
    if x.shape[1 - op.layout] == 0 or x.shape[2] == 0:
        raise Unsupported("the layer wants steps")
    x = x if op.layout else tf.transpose(x, (1, 0, 2))
    back, hidden = op.direction == "reverse", r.shape[2]

    def ordered(t: Any) -> Any:
        parts = tf.split(t, len(gates))
        return tf.concat([parts[i] for i in gates], 0)

    weights = [tf.transpose(ordered(w[0])), tf.transpose(ordered(r[0]))]
    if b is not None:
        both = [ordered(part) for part in tf.split(b[0], 2)]
        weights.append(tf.stack(both) if options.get("reset_after") else both[0] + both[1])
    layer = cls(
        hidden, use_bias=b is not None, return_sequences=True, return_state=True,
        go_backwards=back, dtype=x.dtype.name, **options,
    )  # fmt: skip
    built(layer, x.shape)
    zeros = tf.zeros((x.shape[0], hidden), x.dtype)
    initial = [zeros if s is None else (s[:, 0] if op.layout else s[0]) for s in starts]
    y, *last = run(layer, weights, x, initial_state=initial)
    y = tf.reverse(y, (1,)) if back else y
    y = y[:, :, None] if op.layout else tf.transpose(y, (1, 0, 2))[:, None]
    return y, *(tf.expand_dims(s, op.layout) for s in last)


def by_cells(cell: Any) -> Plan:
    """`keras.layers.RNN` of a cell, with the arguments of a layer."""

    def layer(hidden: int, *, use_bias: bool, dtype: str, **others: Any) -> Any:
        own = {k: others.pop(k) for k in ("activation", "reset_after") if k in others}
        one = cell(hidden, use_bias=use_bias, dtype=dtype, **own)
        return keras.layers.RNN(one, dtype=dtype, **others)

    return layer


ONE_WAY = {"direction": ("forward", "reverse")}
for _name in ("tanh", "relu"):
    forms.add(
        "RNN",
        f'keras.layers.SimpleRNN(activation="{_name}")',
        arithmetic="S",
        attributes={**ONE_WAY, "activations": ((_name.capitalize(),),)},
    )(partial(recurrent, keras.layers.SimpleRNN, (0,), 1, {"activation": _name}))
forms.add(
    "RNN", "keras.layers.RNN(SimpleRNNCell)", arithmetic="S",
    attributes={**ONE_WAY, "activations": (("Tanh",),)},
)(partial(recurrent, by_cells(keras.layers.SimpleRNNCell), (0,), 1, {}))  # fmt: skip
for _title, _layer in (
    ("LSTM", keras.layers.LSTM), ("RNN(LSTMCell)", by_cells(keras.layers.LSTMCell)),
):  # fmt: skip
    forms.add("LSTM", f"keras.layers.{_title}", attributes=ONE_WAY, arithmetic="S")(
        partial(recurrent, _layer, (0, 2, 3, 1), 2, {})
    )
for _title, _layer in (
    ("GRU", keras.layers.GRU), ("RNN(GRUCell)", by_cells(keras.layers.GRUCell)),
):  # fmt: skip
    forms.add(
        "GRU", f"keras.layers.{_title}", arithmetic="S",
        attributes={**ONE_WAY, "linear_before_reset": (1,)},
    )(partial(recurrent, _layer, (0, 1, 2), 1, {"reset_after": True}))  # fmt: skip


@forms.add(
    "Attention", "keras.ops.dot_product_attention", outputs=1, arithmetic="S",
    attributes={"softcap": (0.0,), "is_causal": (0,), "softmax_precision": (None,),
                "left_window_size": (-1,), "right_window_size": (-1,)},
    where={"rank0": 4, "inputs": 3},
)  # fmt: skip
@planned
def attention(op: Any, q: Any, k: Any, v: Any) -> Plan:
    """In Keras' order of axes: heads behind positions."""
    if q.shape[1] != k.shape[1]:
        raise Unsupported("it has as many heads of keys as of queries")

    def call(*tensors: Any) -> Any:
        q, k, v = (tf.transpose(t, (0, 2, 1, 3)) for t in tensors)
        return tf.transpose(keras.ops.dot_product_attention(q, k, v, scale=op.scale), (0, 2, 1, 3))

    return call


@forms.add(
    "Attention", "keras.layers.Attention", outputs=1, arithmetic="S",
    attributes={"scale": (1.0,), "softcap": (0.0,), "is_causal": (0,), "q_num_heads": (1,),
                "kv_num_heads": (1,), "softmax_precision": (None,), "left_window_size": (-1,),
                "right_window_size": (-1,)},
    where={"rank0": 3, "inputs": 3},
)  # fmt: skip
@planned
def one_head(op: Any, q: Any, k: Any, v: Any) -> Plan:
    """Scores that nothing scales."""
    layer = keras.layers.Attention(dtype=q.dtype.name)
    return lambda q, k, v: layer([q, v, k])


@forms.add("Dropout", "keras.layers.Dropout", outputs=1, where={"inputs": {"max": 2}})
@planned
def dropout(op: Any, x: Any, ratio: Any = None) -> Plan:
    """In inference; in training it draws its own mask."""
    layer = keras.layers.Dropout(0.5, dtype=x.dtype.name)
    return lambda x, ratio=None: layer(x, training=False)


forms.add(
    "Flatten", "keras.layers.Flatten", attributes={"axis": (1,)}, where={"rank0": {"min": 2}}
)(planned(lambda op, x: keras.layers.Flatten(dtype=x.dtype.name)))
