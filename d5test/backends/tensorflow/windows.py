"""How windows lie on the spatial axes of a convolution or a pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from d5test.backends.base import Plan
from d5test.backends.tensorflow.framework import tf

Ints = tuple[int, ...]
Pads = list[tuple[int, int]]

ORDER = (None, "NWC", "NHWC", "NDHWC")
"""Names of TensorFlow's own layouts. Without the name, eager gradients over 3 axes raise."""


def steps(op: Any, n: int) -> tuple[Ints, Ints]:
    """Strides and dilations of n axes."""
    strides, dilations = op.strides or (1,) * n, op.dilations or (1,) * n
    return tuple(strides), tuple(dilations)


def pads_of(op: Any, sizes: Sequence[int], kernel: Sequence[int]) -> Pads:
    """Explicit padding of each spatial axis by ONNX's rules, without ceil_mode."""
    n = len(kernel)
    if op.auto_pad in ("NOTSET", ""):
        pads = tuple(op.pads or (0,) * 2 * n)
        return list(zip(pads[:n], pads[n:], strict=True))
    if op.auto_pad == "VALID":
        return [(0, 0)] * n
    result = []
    for i, k, s, d in zip(sizes, kernel, *steps(op, n), strict=True):
        total = max((math.ceil(i / s) - 1) * s + (k - 1) * d + 1 - i, 0)
        begin = total // 2 if op.auto_pad == "SAME_UPPER" else total - total // 2
        result.append((begin, total - begin))
    return result


def ceiled(op: Any, sizes: Sequence[int], pads: Pads) -> Pads:
    """The padding with what ceil_mode adds at the ends; no window may start there."""
    if not op.ceil_mode:
        return pads
    result = []
    axes = zip(sizes, pads, op.kernel_shape, *steps(op, len(pads)), strict=True)
    for i, (begin, end), k, s, d in axes:
        span = (k - 1) * d + 1
        last = math.ceil((i + begin + end - span) / s)
        last -= last * s >= i + begin
        result.append((begin, max(end, last * s + span - i - begin)))
    return result


def padding(pads: Pads, fill: float = 0) -> Plan:
    """A function that pads the spatial axes of x (n, ..., c)."""
    if not any(map(any, pads)):
        return lambda x: x
    sides = [(0, 0), *pads, (0, 0)]
    return lambda x: tf.pad(x, sides, constant_values=tf.constant(fill, x.dtype))
