"""Convolutions, their transposes, and poolings: what slides over spatial axes."""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.torch.arguments import by_rank, integers, leading, outwards, short
from d5test.backends.windows import Windows

rows = Table()
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


# float16 without the processor's own support is summed in float16
@rows.native("Conv", arithmetic="S")
@planned
def conv(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Plan:
    """Composed (padded first) if the pads differ between the two sides."""
    convolve, at = by_rank(CONV, x), Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:]))
    pads = short(at.begin) if at.begin == at.end else 0
    steps = leading((short(at.strides), pads, short(at.dilations), op.group), (1, 0, 1, 1))
    if at.begin == at.end:
        return lambda x, w, b=None: convolve(x, w, b, *steps)
    sides = outwards(at.begin, at.end)
    return lambda x, w, b=None: convolve(F.pad(x, sides), w, b, *steps)


# as Conv
@rows.native("ConvTranspose", arithmetic="S")
@planned
def conv_transpose(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Plan:
    """Composed (cut or extended, then biased) if pads differ or the output padding is large."""
    at = Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:]))
    convolve, group = by_rank(CONV_TRANSPOSE, x), op.group
    strides, dilations = short(at.strides), short(at.dilations)
    more = tuple(op.output_padding or (0,) * len(at.begin))
    begin, end = zip(*at.cut(op), strict=True)
    axes = zip(more, at.strides, at.dilations, strict=True)
    if begin == end and min(begin) >= 0 and all(m < max(s, d) for m, s, d in axes):
        steps = strides, short(begin), short(more), group, dilations
        leading_steps = leading(steps, (1, 0, 0, 1, 1))
        return lambda x, w, b=None: convolve(x, w, b, *leading_steps)
    before, behind = [-p for p in begin], [m - p for m, p in zip(more, end, strict=True)]
    # what is cut off may reach into what is added
    grown = outwards(*([max(n, 0) for n in side] for side in (before, behind)))
    cut = outwards(*([min(n, 0) for n in side] for side in (before, behind)))
    channels = (-1, *(1,) * len(begin))

    def call(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        y = F.pad(convolve(x, w, None, strides, 0, 0, group, dilations), grown)
        y = F.pad(y, cut) if any(cut) else y
        return y if b is None else y + b.reshape(channels)

    return call


MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
GLOBAL_MAX_POOL = {
    1: F.adaptive_max_pool1d,
    2: F.adaptive_max_pool2d,
    3: F.adaptive_max_pool3d,
}
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
        y = convolve(planes, ones, None, strides, 0, dilations)
        return y.squeeze(1).unflatten(0, x.shape[:2])

    def call(x: Tensor) -> Tensor:
        counted = F.pad(x.new_ones((1, 1, *at.size)), inside, value=include)
        return sums(F.pad(x, sides)) / sums(F.pad(counted, beyond))

    return call


def adaptive(functions: dict[int, Any], op: Any, x: Tensor) -> Plan:
    pool = by_rank(functions, x)
    return lambda x: pool(x, 1)


rows.native("GlobalAveragePool")(planned(partial(adaptive, GLOBAL_POOL)))
rows.native("GlobalMaxPool")(planned(partial(adaptive, GLOBAL_MAX_POOL)))


@rows.native("GlobalLpPool")
@planned
def global_lp_pool(op: Any, x: Tensor) -> Plan:
    axes, p = tuple(range(2, x.ndim)), op.p
    return lambda x: torch.linalg.vector_norm(x, p, axes, keepdim=True)


LP_POOL = {1: F.lp_pool1d, 2: F.lp_pool2d, 3: F.lp_pool3d}


@rows.native("LpPool")
@planned
def lp_pool(op: Any, x: Tensor) -> Plan:
    """Composed (of |x|, padded) for an odd power, or with pads, of which torch knows nothing."""
    pool, at = by_rank(LP_POOL, x), Windows.of(op, tuple(x.shape[2:]), tuple(op.kernel_shape))
    if max(at.dilations) > 1:
        raise Unsupported("F.lp_pool1d, 2d, 3d have no dilation")
    p, kernel, strides = op.p, short(at.kernel), short(at.strides)
    sides = outwards(at.begin, at.reach)
    if p % 2 == 0 and not any(sides):
        return lambda x: pool(x, p, kernel, strides)
    return lambda x: pool(F.pad(torch.abs(x), sides), p, kernel, strides)


@rows.native("Col2Im", arithmetic="S", values=(1, 2))
@planned
def col2im(op: Any, x: Tensor, image_shape: Tensor, block_shape: Tensor) -> Plan:
    """Uneven pads are cut off afterwards."""
    size, kernel, pads = integers(image_shape), integers(block_shape), op.pads or (0, 0, 0, 0)
    if len(size) != 2:
        raise Unsupported("torch.nn.functional.fold makes images")
    strides, dilations = op.strides or (1, 1), op.dilations or (1, 1)
    if pads[:2] == pads[2:]:
        return lambda x, *_: F.fold(x, size, kernel, dilations, pads[:2], strides)
    whole = tuple(n + b + e for n, b, e in zip(size, pads[:2], pads[2:], strict=True))
    part = (..., *(slice(b, b + n) for n, b in zip(size, pads, strict=False)))
    return lambda x, *_: F.fold(x, whole, kernel, dilations, 0, strides)[part]


MAX_UNPOOL = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}


@rows.native("MaxUnpool", values=(2,))
@planned
def max_unpool(op: Any, x: Tensor, indices: Tensor, output_shape: Tensor | None = None) -> Plan:
    """torch counts within each plane."""
    rank, unpool = x.ndim - 2, by_rank(MAX_UNPOOL, x)
    pads, strides = op.pads or (0,) * 2 * rank, op.strides or (1,) * rank
    axes = zip(x.shape[2:], strides, op.kernel_shape, pads, strict=False)
    out = tuple((n - 1) * s + k - 2 * p for n, s, k, p in axes)
    if pads[:rank] != pads[rank:] or (
        output_shape is not None and integers(output_shape)[2:] != out
    ):
        raise Unsupported("torch's unpoolings cut both sides alike, and number a larger size")
    plane, steps = math.prod(out), (op.kernel_shape, strides, pads[:rank])
    return lambda x, indices, *_: unpool(x, indices % plane, *steps)


@rows.composed("CausalConvWithState", arithmetic="S", stopped=(3,))
@planned
def causal_conv(op: Any, x: Tensor, w: Tensor, *rest: Tensor | None) -> Plan:
    n, c, before = x.shape[2], x.shape[1], (*x.shape[:2], w.shape[2] - 1)

    def call(x: Tensor, w: Tensor, b: Any = None, past: Any = None) -> tuple[Tensor, Tensor]:
        steps = torch.cat((x.new_zeros(before) if past is None else past, x), 2)
        y = F.conv1d(steps, w, b, groups=c)
        return y if op.activation == "none" else F.silu(y), steps[:, :, n:]

    return call
