"""Forms of Conv with a group of its own for each channel: a kernel apart, with a gradient apart.

The filter of TensorFlow is (..., c, m): m outputs of each of c channels, next to each other.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras

from d5test.backends.base import Forms, Plan, Unsupported, planned
from d5test.backends.tensorflow.framework import tf
from d5test.backends.tensorflow.layers import VALID, built, in_channels_last, run, spatial
from d5test.backends.windows import Windows

forms = Forms()


def per_channel(op: Any, w: Any) -> Any:
    """The filter as TensorFlow has it."""
    n = w.ndim - 2
    each = tf.reshape(w, (op.group, w.shape[0] // op.group, *w.shape[2:]))
    return tf.transpose(each, (*range(2, n + 2), 0, 1))


def windows(op: Any, x: Any, w: Any) -> Windows:
    """The windows, if TensorFlow's kernel has them."""
    at = spatial(op, x, w.shape[2:])
    if len({*at.strides}) > 1:
        raise Unsupported("TensorFlow has one stride for all axes of a depthwise convolution")
    return at


def by_function(convolve: Plan, op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    """`convolve` takes x, the filter, the strides of the axes, and their dilations."""
    at = windows(op, x, w)

    def call(x: Any, w: Any, b: Any = None) -> Any:
        y = convolve(x, per_channel(op, w), at.strides, at.dilations)
        return y if b is None else y + b

    return in_channels_last(call, x)


def by_layer(cls: Any, op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    """`cls` is a layer of Keras."""
    at, multiplier = windows(op, x, w), w.shape[0] // op.group
    layer = cls(
        at.kernel, at.strides, depth_multiplier=multiplier, dilation_rate=at.dilations,
        use_bias=b is not None, dtype=x.dtype.name,
    )  # fmt: skip
    built(layer, (x.shape[0], *x.shape[2:], x.shape[1]))
    return in_channels_last(lambda x, w, b=None: run(layer, [per_channel(op, w), b], x), x)


def tensorflows(x: Any, w: Any, strides: Sequence[int], dilations: Sequence[int]) -> Any:
    return tf.nn.depthwise_conv2d(x, w, (1, *strides, 1), "VALID", dilations=dilations)


def keras_own(x: Any, w: Any, strides: Sequence[int], dilations: Sequence[int]) -> Any:
    return keras.ops.depthwise_conv(x, w, strides, "valid", dilation_rate=dilations)


for _title, _plan, _axes in (
    ("tf.nn.depthwise_conv2d", partial(by_function, tensorflows), 4),
    ("keras.ops.depthwise_conv(1D)", partial(by_function, keras_own), 3),
    ("keras.ops.depthwise_conv(2D)", partial(by_function, keras_own), 4),
    ("keras.layers.DepthwiseConv1D", partial(by_layer, keras.layers.DepthwiseConv1D), 3),
    ("keras.layers.DepthwiseConv2D", partial(by_layer, keras.layers.DepthwiseConv2D), 4),
):  # fmt: skip
    forms.add(
        "Conv", _title, arithmetic="S", attributes=VALID,
        where={"rank0": _axes, "shape1[1]": 1, "group": {"min": 2}},
    )(planned(_plan))  # fmt: skip
