"""Convolutions and their transposes over 1, 2 or 3 spatial axes."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.arguments import channels_last, channels_second
from d5test.backends.tensorflow.framework import tf
from d5test.backends.tensorflow.windows import ORDER, padding, steps
from d5test.backends.windows import Ints, Windows

rows = Table()


@rows.native("Conv", arithmetic="S")
@planned
def conv(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    n, group = w.ndim - 2, op.group
    at = Windows.of(op, x.shape[2:], w.shape[2:])
    pad, convolve = padding(at.pads), convolution(at.strides, at.dilations)
    last, second, kernel = channels_last(n + 2), channels_second(n + 2), kernel_first(n)
    whole = group == 1 or (n < 3 and has_groups(x.dtype))

    def call(x: Any, w: Any, b: Any = None) -> Any:
        x, w = pad(tf.transpose(x, last)), tf.transpose(w, kernel)
        if whole:
            y = convolve(x, w)
        else:
            parts = zip(tf.split(x, group, -1), tf.split(w, group, -1), strict=True)
            y = tf.concat([convolve(xi, wi) for xi, wi in parts], -1)
        return tf.transpose(y if b is None else y + b, second)

    return call


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
        given = {"data_format": ORDER[len(strides)], "dilations": dilations}
        return partial(tf.nn.convolution, strides=strides, padding="VALID", **given)
    if len(strides) == 2:
        return partial(tf.nn.conv2d, strides=strides, padding="VALID", dilations=dilations)
    raise Unsupported("tf.nn.convolution has no strides together with dilations")


@rows.native("ConvTranspose", arithmetic="S")
@planned
def conv_transpose(op: Any, x: Any, w: Any, b: Any = None) -> Plan:
    n, group = w.ndim - 2, op.group
    strides, dilations = steps(op, n)
    axes = zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
    full = [s * (i - 1) + (k - 1) * d + 1 for i, k, s, d in axes]
    begins, wanted = cut(op, x.shape[2:], w.shape[2:], full)
    ends = [a + o - f for a, o, f in zip(begins, wanted, full, strict=True)]
    pad = padding([(0, max(end, 0)) for end in ends])
    last, second, kernel = channels_last(n + 2), channels_second(n + 2), kernel_first(n)
    samples, channels = x.shape[0], w.shape[1]
    first, size = (0, *begins, 0), (samples, *wanted, channels * group)
    function = partial(
        (tf.nn.conv1d_transpose, tf.nn.conv2d_transpose, tf.nn.conv3d_transpose)[n - 1],
        output_shape=(samples, *full, channels),
        strides=strides,
        padding="VALID",
        dilations=dilations,
    )

    def call(x: Any, w: Any, b: Any = None) -> Any:
        x, w = tf.transpose(x, last), tf.transpose(w, kernel)
        parts = zip(tf.split(x, group, -1), tf.split(w, group, -1), strict=True)
        ys = [function(xi, wi) for xi, wi in parts]
        y = pad(ys[0] if group == 1 else tf.concat(ys, -1))
        y = tf.slice(y, first, size)
        return tf.transpose(y if b is None else y + b, second)

    return call


def cut(op: Any, sizes: Any, kernel: Any, full: list[int]) -> tuple[list[int], list[int]]:
    """Of a full transposed convolution: where to begin on each axis, and the sizes wanted."""
    n = len(full)
    extra, wanted = op.output_padding or (0,) * n, op.output_shape
    if wanted is None and op.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [i * s for i, s in zip(sizes, steps(op, n)[0], strict=True)]
    if wanted is None:
        pads = Windows.of(op, sizes, kernel).pads
        sides = [f + e - sum(p) for f, e, p in zip(full, extra, pads, strict=True)]
        return [begin for begin, _ in pads], sides
    wanted = list(wanted)[-n:]
    total = [max(f + e - o, 0) for f, e, o in zip(full, extra, wanted, strict=True)]
    return [t // 2 if op.auto_pad == "SAME_UPPER" else t - t // 2 for t in total], wanted
