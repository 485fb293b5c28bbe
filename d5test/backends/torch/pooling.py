"""Maxima and means of windows over 1, 2 or 3 spatial axes."""

from __future__ import annotations

import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, planned
from d5test.backends.torch.arguments import by_rank, leading, outwards, short
from d5test.backends.torch.convolution import CONV
from d5test.backends.windows import Windows

rows = Table()

MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
GLOBAL_POOL = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


@rows.native("MaxPool", outputs=1)
@planned
def max_pool(op: Any, x: Tensor) -> Plan:
    """Composed (padded with -inf first) if the pads differ or exceed half a kernel.

    torch counts the indices within each plane, ONNX through the whole tensor: left out.
    """
    pool, at = by_rank(MAX_POOL, x), Windows.of(op, tuple(x.shape[2:]), tuple(op.kernel_shape))
    kernel, strides, dilations = short(at.kernel), short(at.strides), short(at.dilations)
    if at.plain:
        pads, ceil = short(at.begin), at.ceil
        return lambda x: pool(x, kernel, strides, pads, dilations, ceil)
    sides = outwards(at.begin, at.reach)
    return lambda x: pool(F.pad(x, sides, value=-math.inf), kernel, strides, 0, dilations)


@rows.native("AveragePool")
@planned
def average_pool(op: Any, x: Tensor) -> Plan:
    """Composed (a convolution with ones) if dilated, or pads differ or exceed half a kernel."""
    pool, at = by_rank(AVERAGE_POOL, x), Windows.of(op, tuple(x.shape[2:]), tuple(op.kernel_shape))
    include, strides = bool(op.count_include_pad), short(at.strides)
    # avg_pool3d wants the kernel to fit into the input before padding
    fits = x.ndim < 5 or all(n >= k for n, k in zip(at.size, at.kernel, strict=True))
    if at.plain and max(at.dilations) == 1 and fits:
        steps = leading((strides, short(at.begin), at.ceil, include), (None, 0, False, True))
        kernel = short(at.kernel)
        return lambda x: pool(x, kernel, *steps)
    convolve, dilations = by_rank(CONV, x), short(at.dilations)
    inside, sides = outwards(at.begin, at.end), outwards(at.begin, at.reach)
    behind = [r - e for r, e in zip(at.reach, at.end, strict=True)]
    beyond = outwards((0,) * len(behind), behind)

    def sums(x: Tensor) -> Tensor:
        planes, ones = x.flatten(0, 1).unsqueeze(1), x.new_ones((1, 1, *at.kernel))
        return (
            convolve(planes, ones, None, strides, 0, dilations)
            .squeeze(1)
            .unflatten(0, x.shape[:2])
        )

    def call(x: Tensor) -> Tensor:
        counted = F.pad(x.new_ones((1, 1, *at.size)), inside, value=include)
        return sums(F.pad(x, sides)) / sums(F.pad(counted, beyond))

    return call


@rows.native("GlobalAveragePool")
@planned
def global_average_pool(op: Any, x: Tensor) -> Plan:
    pool = by_rank(GLOBAL_POOL, x)
    return lambda x: pool(x, 1)
