"""How windows lie on the spatial axes of a convolution or a pooling, in plain numbers.

For any framework: one without `auto_pad`, uneven pads or `ceil_mode` pads what `Windows` says, and
then slides without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Ints = tuple[int, ...]
Pads = list[tuple[int, int]]


@dataclass(frozen=True)
class Windows:
    """ONNX's attributes with all defaults and pads found, a number for each spatial axis.

    size        of the input
    kernel, strides, dilations
    begin, end  padding, by `pads` or `auto_pad`
    ceil        whether a last window may reach beyond the padding
    """

    size: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    begin: Ints
    end: Ints
    ceil: bool

    @classmethod
    def of(cls, op: Any, size: Sequence[int], kernel: Sequence[int]) -> Windows:
        """Those of Conv, MaxPool or AveragePool on an input (n, c, *size)."""
        n = len(size)
        strides, dilations = op.strides or (1,) * n, op.dilations or (1,) * n
        pads = op.pads or (0,) * (2 * n)
        begin, end = tuple(pads[:n]), tuple(pads[n:])
        if op.auto_pad == "VALID":
            begin = end = (0,) * n
        elif op.auto_pad != "NOTSET":
            axes = zip(size, kernel, strides, dilations, strict=True)
            total = [max(0, (-(-i // s) - 1) * s + (k - 1) * d + 1 - i) for i, k, s, d in axes]
            less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
            begin, end = (less, more) if op.auto_pad == "SAME_UPPER" else (more, less)
        ceil = bool(getattr(op, "ceil_mode", 0)) and op.auto_pad == "NOTSET"
        return cls(tuple(size), tuple(kernel), tuple(strides), tuple(dilations), begin, end, ceil)

    def cut(self, op: Any) -> Pads:
        """What ConvTranspose cuts off both ends of each axis of the full transposed convolution,
        which ends with `output_padding`; what is negative is added.
        """
        n, upper = len(self.size), op.auto_pad == "SAME_UPPER"
        wanted = op.output_shape
        if wanted is None and op.auto_pad.startswith("SAME"):
            wanted = [i * s for i, s in zip(self.size, self.strides, strict=True)]
        if wanted is None:
            return self.pads
        more = op.output_padding or (0,) * n
        axes = (self.size, self.kernel, self.strides, self.dilations, more, wanted[-n:])
        cut = []
        for i, k, s, d, m, o in zip(*axes, strict=True):
            over = (i - 1) * s + (k - 1) * d + 1 + m - o
            begin = max(0, over) // 2 if upper else max(0, over) - max(0, over) // 2
            cut.append((begin, over - begin))
        return cut

    @property
    def pads(self) -> Pads:
        """Padding before and behind each axis."""
        return list(zip(self.begin, self.end, strict=True))

    @property
    def covering(self) -> Pads:
        """Padding with which every window fits in."""
        axes = zip(self.begin, self.end, self.reach, strict=True)
        return [(begin, max(end, reach)) for begin, end, reach in axes]

    @property
    def plain(self) -> bool:
        """Whether pads are as pools want them: even, and at most half a kernel."""
        return self.begin == self.end and all(
            2 * p <= k for p, k in zip(self.begin, self.kernel, strict=True)
        )

    @property
    def reach(self) -> Ints:
        """The padding behind each axis at which its last window ends."""
        reach = []
        axes = (self.size, self.kernel, self.strides, self.dilations, self.begin, self.end)
        for i, k, s, d, b, e in zip(*axes, strict=True):
            extent = (k - 1) * d + 1
            steps = i + b + e - extent
            last = (-(-steps // s) if self.ceil else steps // s) * s
            if self.ceil and last >= i + b:  # a window in the padding alone is none
                last -= s
            reach.append(last + extent - i - b)
        return tuple(reach)
