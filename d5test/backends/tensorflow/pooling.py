"""Maxima and means of windows over 1, 2 or 3 spatial axes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.arguments import channels_last, channels_second
from d5test.backends.tensorflow.framework import tf
from d5test.backends.tensorflow.windows import ORDER, padding, steps
from d5test.backends.windows import Pads, Windows

rows = Table()
POOLS = {"MAX": tf.nn.max_pool, "AVG": tf.nn.avg_pool}


def pooling(op: Any, kind: str, pads: Pads, *, fill: float = 0, same: bool = False) -> Plan:
    """The native function of x (n, c, ...), padded first, or by TensorFlow's rule SAME."""
    n = len(pads)
    strides, dilations = steps(op, n)
    given = {"strides": strides, "padding": "SAME" if same else "VALID"}
    if max(dilations) == 1:
        function = partial(POOLS[kind], ksize=op.kernel_shape, data_format=ORDER[n], **given)
    elif max(strides) > 1:
        raise Unsupported("tf.nn.pool has no strides together with dilations")
    else:
        given |= {"window_shape": op.kernel_shape, "dilations": dilations}
        function = partial(tf.nn.pool, pooling_type=kind, **given)
    pad = padding([] if same else pads, fill)
    last, second = channels_last(n + 2), channels_second(n + 2)
    return lambda x: tf.transpose(function(pad(tf.transpose(x, last))), second)


@rows.native("MaxPool", outputs=1, arithmetic="S")
@planned
def max_pool(op: Any, x: Any) -> Plan:
    pads = Windows.of(op, x.shape[2:], op.kernel_shape).covering
    return pooling(op, "MAX", pads, fill=-math.inf)


@rows.native("AveragePool", arithmetic="S")
@planned
def average_pool(op: Any, x: Any) -> Plan:
    sizes, include = x.shape[2:], bool(op.count_include_pad)
    at = Windows.of(op, sizes, op.kernel_shape)
    pads, padded = at.pads, at.covering
    if not any(map(any, padded)) or (include and padded == pads):
        return pooling(op, "AVG", padded)
    strides, dilations = steps(op, len(sizes))
    axes = zip(sizes, op.kernel_shape, strides, strict=True)
    total = [max((math.ceil(i / s) - 1) * s + k - i, 0) for i, k, s in axes]
    same = padded == [(t // 2, t - t // 2) for t in total]
    if same and not include and max(dilations) == 1:
        return pooling(op, "AVG", padded, same=True)
    raise Unsupported("tf.nn.avg_pool leaves padding out of the mean only where it is SAME's")


@rows.native("GlobalAveragePool", arithmetic="S")
@planned
def global_average_pool(op: Any, x: Any) -> Plan:
    return partial(tf.reduce_mean, axis=tuple(range(2, x.ndim)), keepdims=True)
