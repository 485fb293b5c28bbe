"""Normalisations by mean and deviation, over the batch, over axes, over groups of channels."""

from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import channels_last, channels_second, channelwise, tf

rows = Table()


@rows.composed("MeanVarianceNormalization", arithmetic="S")
def mean_variance(op: Any, x: Any) -> Any:
    """Not by tf.nn.moments, whose second derivative lacks a term."""
    deviation = tf.math.reduce_std(x, op.axes, keepdims=True)
    return (x - tf.reduce_mean(x, op.axes, keepdims=True)) / (deviation + 1e-9)


@rows.native("BatchNormalization", arithmetic="S")
@planned
def batch_normalization(op: Any, x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Plan:
    return training(op, x, mean) if op.training_mode else inference(op, x)


def inference(op: Any, x: Any) -> Plan:
    dtype, shape, epsilon = x.dtype, (-1, *(1,) * (x.ndim - 2)), op.epsilon

    def call(x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
        parameters = (tf.reshape(tf.cast(p, dtype), shape) for p in (mean, var, b, scale))
        return tf.nn.batch_normalization(x, *parameters, variance_epsilon=epsilon)

    return call


def training(op: Any, x: Any, mean: Any) -> Plan:
    normalise = inference(op, x) if x.dtype == tf.float64 else fused(op, x)
    axes, kept = (0, *range(2, x.ndim)), op.momentum
    wider = mean.dtype.size > x.dtype.size

    def call(x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
        m, v = tf.nn.moments(tf.cast(x, mean.dtype) if wider else x, axes)
        y = normalise(x, scale, b, m, v)
        m, v = tf.cast(m, mean.dtype), tf.cast(v, var.dtype)
        return y, mean * kept + m * (1 - kept), var * kept + v * (1 - kept)

    return call


def fused(op: Any, x: Any) -> Plan:
    """Not tf.compat.v1.nn.fused_batch_norm: it raises epsilon to 1.001e-5."""
    last, second = channels_last(x.ndim), channels_second(x.ndim)
    flat, whole = (x.shape[0], -1, 1, x.shape[1]), (x.shape[0], *x.shape[2:], x.shape[1])
    epsilon = op.epsilon

    def call(x: Any, scale: Any, b: Any, *_: Any) -> Any:
        y = tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(tf.transpose(x, last), flat),
            scale=tf.cast(scale, tf.float32),
            offset=tf.cast(b, tf.float32),
            mean=tf.zeros(0),
            variance=tf.zeros(0),
            epsilon=epsilon,
            is_training=True,
        )[0]
        return tf.transpose(tf.reshape(y, whole), second)

    return call


def wide(x: Any) -> Any:
    """In float32 at least: ONNX's stash_type."""
    return tf.cast(x, tf.float32) if x.dtype.size < 4 else x


@rows.composed("LayerNormalization", arithmetic="S")
def layer_normalization(op: Any, x: Any, scale: Any, b: Any = None) -> Any:
    v = wide(x)
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    mean, var = tf.nn.moments(v, axes, keepdims=True)
    inverse = tf.math.rsqrt(var + op.epsilon)
    y = tf.cast((v - mean) * inverse, x.dtype) * scale
    return (y if b is None else y + b), mean, inverse


@rows.composed("GroupNormalization", arithmetic="S")
def group_normalization(op: Any, x: Any, scale: Any, bias: Any) -> Any:
    grouped = wide(tf.reshape(x, (x.shape[0], op.num_groups, -1)))
    mean, var = tf.nn.moments(grouped, (2,), keepdims=True)
    y = tf.nn.batch_normalization(grouped, mean, var, None, None, op.epsilon)
    y = tf.cast(tf.reshape(y, x.shape), x.dtype)
    return y * channelwise(scale, x) + channelwise(bias, x)


@rows.composed("InstanceNormalization", arithmetic="S")
def instance_normalization(op: Any, x: Any, scale: Any, b: Any) -> Any:
    v = wide(x)
    mean, var = tf.nn.moments(v, tuple(range(2, x.ndim)), keepdims=True)
    y = tf.cast(tf.nn.batch_normalization(v, mean, var, None, None, op.epsilon), x.dtype)
    return y * channelwise(scale, x) + channelwise(b, x)


@rows.composed("RMSNormalization", arithmetic="S")
def rms_normalization(op: Any, x: Any, scale: Any) -> Any:
    v = wide(x)
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    square = tf.reduce_mean(tf.square(v), axes, keepdims=True)
    return tf.cast(v * tf.math.rsqrt(square + op.epsilon), x.dtype) * scale


@rows.native("LRN", dtypes=("float32", "float16", "bfloat16"), arithmetic="S")
@planned
def lrn(op: Any, x: Any) -> Plan:
    if op.size % 2 == 0 or x.ndim != 4:
        raise Unsupported("tf.nn.local_response_normalization has odd windows and 4 axes")
    last, second = channels_last(x.ndim), channels_second(x.ndim)
    radius, alpha = op.size // 2, op.alpha / op.size

    def call(x: Any) -> Any:
        y = tf.transpose(x, last)
        y = tf.nn.local_response_normalization(y, radius, op.bias, alpha, op.beta)
        return tf.transpose(y, second)

    return call
