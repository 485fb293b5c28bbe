"""How windows lie on the spatial axes of a convolution or a pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Ints = tuple[int, ...]
Pads = list[tuple[int, int]]


@dataclass(frozen=True)
class Windows:
    """ONNX's attributes with all defaults and pads found.

    `more` are the further pads at the end that `ceil_mode` asks for.
    """

    kernel: Ints
    strides: Ints
    dilations: Ints
    pads: Pads
    more: Ints

    @classmethod
    def of(cls, op: Any, sizes: Sequence[int], kernel: Sequence[int]) -> Windows:
        n = len(sizes)
        strides = tuple(op.strides or (1,) * n)
        dilations = tuple(op.dilations or (1,) * n)
        given = (op.auto_pad == "NOTSET" and op.pads) or (0,) * (2 * n)
        pads, more = [], []
        for i in range(n):
            reach, s = (kernel[i] - 1) * dilations[i] + 1, strides[i]
            low, high, further = given[i], given[n + i], 0
            if op.auto_pad.startswith("SAME"):
                total = max((-(-sizes[i] // s) - 1) * s + reach - sizes[i], 0)
                low = total // 2 if op.auto_pad == "SAME_UPPER" else total - total // 2
                high = total - low
            elif getattr(op, "ceil_mode", 0):
                further = -(sizes[i] + low + high - reach) % s
                last = sizes[i] + low + high + further - reach
                if last >= sizes[i] + low:  # a window may not start in the padding at the end
                    further -= s
            pads.append((low, high))
            more.append(further)
        return cls(tuple(kernel), strides, dilations, pads, tuple(more))
