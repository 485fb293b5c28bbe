"""Convolutions and their transposes over 1, 2 or 3 spatial axes."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, planned
from d5test.backends.torch.arguments import Ints, by_rank, leading, outwards, short
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
    begin, end = cut(op, at, more)
    axes = zip(more, at.strides, at.dilations, strict=True)
    if begin == end and min(begin) >= 0 and all(m < max(s, d) for m, s, d in axes):
        steps = strides, short(begin), short(more), group, dilations
        given = leading(steps, (1, 0, 0, 1, 1))
        return lambda x, w, b=None: convolve(x, w, b, *given)
    sides = outwards([-p for p in begin], [m - p for m, p in zip(more, end, strict=True)])
    channels = (-1, *(1,) * len(begin))

    def call(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        y = F.pad(convolve(x, w, None, strides, 0, 0, group, dilations), sides)
        return y if b is None else y + b.reshape(channels)

    return call


def cut(op: Any, at: Windows, more: Ints) -> tuple[Ints, Ints]:
    """What is cut off the full transposed convolution at both ends of each axis."""
    shape = op.output_shape
    if shape is None and op.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        shape = [i * s for i, s in zip(at.size, at.strides, strict=True)]
    if shape is None:
        return at.begin, at.end
    axes = (at.size, at.kernel, at.strides, at.dilations, more, shape[-len(more) :])
    over = [(i - 1) * s + (k - 1) * d + 1 + m - o for i, k, s, d, m, o in zip(*axes, strict=True)]
    upper = op.auto_pad == "SAME_UPPER"
    begin = tuple(max(0, t) // 2 if upper else max(0, t) - max(0, t) // 2 for t in over)
    return begin, tuple(t - b for t, b in zip(over, begin, strict=True))
