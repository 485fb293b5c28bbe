"""Convolutions, their transposes, and poolings: what slides over spatial axes."""

import math
from functools import cache, partial
from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import channels_last, channels_second, tf
from d5test.backends.windows import Ints, Pads, Windows

rows = Table()
ORDER = (None, "NWC", "NHWC", "NDHWC")
"""Names of TensorFlow's own layouts. Without the name, eager gradients over 3 axes raise."""
BLOCK = 16
OVERRUN = "oneDNN writes past the end of its workspace (uxlfoundation/oneDNN#6035)"
"""In the weight gradient of a strided convolution of kernel 1 along one or two axes, of fewer
channels than a block has. Calls that come later crash, so that nothing may be asked there."""


def refuse_overrun(at: Windows, group: int, channels: int, x: Any) -> None:
    """Raise `Unsupported` where a weight gradient would write into others' memory.

    channels  of what the kernel's gradient is the sum over: of a transposed convolution its output
    """
    strided = len(at.kernel) < 3 and max(at.kernel) == 1 and max(at.strides) > 1
    narrow = x.dtype.name in ("float32", "bfloat16") and "GPU" not in x.device
    if strided and narrow and group == 1 and channels < BLOCK:
        raise Unsupported(f"known failure: {OVERRUN}")


def padding(pads: Pads, fill: float = 0) -> Plan:
    """A function that pads the spatial axes of x (n, ..., c)."""
    if not any(map(any, pads)):
        return lambda x: x
    sides = [(0, 0), *pads, (0, 0)]
    return lambda x: tf.pad(x, sides, constant_values=tf.constant(fill, x.dtype))


@rows.native("Conv", arithmetic="S")
@planned
def conv(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    n, group = w.ndim - 2, op.group
    at = Windows.of(op, x.shape[2:], w.shape[2:])
    refuse_overrun(at, group, x.shape[1], x)
    pad, convolve = padding(at.pads), convolution(at.strides, at.dilations)
    last, second, kernel = channels_last(n + 2), channels_second(n + 2), kernel_first(n)
    if n == 3 or not has_groups(x.dtype):
        convolve = grouped(convolve, group)

    def call(x: Any, w: Any, b: Any = None) -> Any:
        y = convolve(pad(tf.transpose(x, last)), tf.transpose(w, kernel))
        return tf.transpose(y if b is None else y + b, second)

    return call


def grouped(convolve: Plan, group: int) -> Plan:
    """The function of x (n, ..., c) and w, group by group."""

    def call(x: Any, w: Any) -> Any:
        parts = zip(tf.split(x, group, -1), tf.split(w, group, -1), strict=True)
        return tf.concat([convolve(xi, wi) for xi, wi in parts], -1)

    return convolve if group == 1 else call


@cache
def has_groups(dtype: Any) -> bool:
    """Whether tf.nn.conv2d differentiates groups: in oneDNN's kernels, which not all CPUs run."""
    with tf.init_scope(), tf.GradientTape() as tape:
        x, w = tf.zeros((1, 2, 2, 2), dtype), tf.zeros((1, 1, 1, 2), dtype)
        tape.watch(x)
        y = tf.nn.conv2d(x, w, 1, "VALID")
        try:
            return tape.gradient(y, x) is not None
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            return False


def kernel_first(n: int) -> Ints:
    """The transposition from (c_out, c_in, ...) to (..., c_in, c_out)."""
    return (*range(2, n + 2), 1, 0)


def convolution(strides: Ints, dilations: Ints) -> Plan:
    """The native function of x (n, ..., c) and w."""
    if max(strides) == 1 or max(dilations) == 1:
        return partial(
            tf.nn.convolution,
            strides=strides,
            padding="VALID",
            data_format=ORDER[len(strides)],
            dilations=dilations,
        )
    if len(strides) == 2:
        return partial(tf.nn.conv2d, strides=strides, padding="VALID", dilations=dilations)
    raise Unsupported("tf.nn.convolution has no strides together with dilations")


@rows.native("ConvTranspose", arithmetic="S")
@planned
def conv_transpose(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    n, group = w.ndim - 2, op.group
    at, extra = Windows.of(op, x.shape[2:], w.shape[2:]), op.output_padding or (0,) * n
    axes = zip(at.size, at.kernel, at.strides, at.dilations, strict=True)
    full = [s * (i - 1) + (k - 1) * d + 1 for i, k, s, d in axes]
    begins, ends = zip(*at.cut(op), strict=True)
    wanted = [f + e - a - b for f, e, a, b in zip(full, extra, begins, ends, strict=True)]
    pad = padding([(0, max(e - b, 0)) for e, b in zip(extra, ends, strict=True)])
    last, second, kernel = channels_last(n + 2), channels_second(n + 2), kernel_first(n)
    samples, channels = x.shape[0], w.shape[1]
    refuse_overrun(at, group, channels, x)
    first, size = (0, *begins, 0), (samples, *wanted, channels * group)
    convolve = partial(
        (tf.nn.conv1d_transpose, tf.nn.conv2d_transpose, tf.nn.conv3d_transpose)[n - 1],
        output_shape=(samples, *full, channels),
        strides=at.strides,
        padding="VALID",
        dilations=at.dilations,
    )
    transposed = grouped(convolve, group)

    def call(x: Any, w: Any, b: Any = None) -> Any:
        y = pad(transposed(tf.transpose(x, last), tf.transpose(w, kernel)))
        y = tf.slice(y, first, size)
        return tf.transpose(y if b is None else y + b, second)

    return call


POOLS = {"MAX": tf.nn.max_pool, "AVG": tf.nn.avg_pool}


def pooling(kind: str, at: Windows, pads: Pads, *, fill: float = 0, same: bool = False) -> Plan:
    """The native function of x (n, c, ...), padded first, or by TensorFlow's rule SAME."""
    n = len(pads)
    options = {"strides": at.strides, "padding": "SAME" if same else "VALID"}
    if max(at.dilations) == 1:
        function = partial(POOLS[kind], ksize=at.kernel, data_format=ORDER[n], **options)
    elif max(at.strides) > 1:
        raise Unsupported("tf.nn.pool has no strides together with dilations")
    else:
        options |= {"window_shape": at.kernel, "dilations": at.dilations}
        function = partial(tf.nn.pool, pooling_type=kind, **options)
    pad = padding([] if same else pads, fill)
    last, second = channels_last(n + 2), channels_second(n + 2)
    return lambda x: tf.transpose(function(pad(tf.transpose(x, last))), second)


@rows.native("MaxPool", outputs=1, arithmetic="S")
@planned
def max_pool(op: Any, x: Any) -> Plan:
    at = Windows.of(op, x.shape[2:], op.kernel_shape)
    return pooling("MAX", at, at.covering, fill=-math.inf)


@rows.native("AveragePool", arithmetic="S")
@planned
def average_pool(op: Any, x: Any) -> Plan:
    at, include = Windows.of(op, x.shape[2:], op.kernel_shape), bool(op.count_include_pad)
    padded = at.covering
    if not any(map(any, padded)) or (include and padded == at.pads):
        return pooling("AVG", at, padded)
    axes = zip(at.size, at.kernel, at.strides, strict=True)
    total = [max((math.ceil(i / s) - 1) * s + k - i, 0) for i, k, s in axes]
    same = padded == [(t // 2, t - t // 2) for t in total]
    if same and not include and max(at.dilations) == 1:
        return pooling("AVG", at, padded, same=True)
    raise Unsupported("tf.nn.avg_pool leaves padding out of the mean only where it is SAME's")


@rows.composed("LpPool", arithmetic="S")
@planned
def lp_pool(op: Any, x: Any) -> Plan:
    """The mean of |x|^p in each window, times its size, is their sum."""
    at, p = Windows.of(op, x.shape[2:], op.kernel_shape), op.p
    mean, size = pooling("AVG", at, at.covering), math.prod(at.kernel)
    return lambda x: (size * mean(tf.abs(x) ** p)) ** (1 / p)


@rows.composed("GlobalLpPool", arithmetic="S")
@planned
def global_lp_pool(op: Any, x: Any) -> Plan:
    axes, p = tuple(range(2, x.ndim)), op.p
    return lambda x: tf.reduce_sum(tf.abs(x) ** p, axes, keepdims=True) ** (1 / p)


def reduced(function: Plan, op: Any, x: Any) -> Plan:
    return partial(function, axis=tuple(range(2, x.ndim)), keepdims=True)


rows.native("GlobalAveragePool", arithmetic="S")(planned(partial(reduced, tf.reduce_mean)))
rows.native("GlobalMaxPool", arithmetic="F")(planned(partial(reduced, tf.reduce_max)))
