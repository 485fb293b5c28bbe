"""How windows lie on the spatial axes of a convolution or a pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from d5test.backends.torch.arguments import Ints


@dataclass(frozen=True)
class Windows:
    """ONNX's attributes with all defaults and pads found."""

    size: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    begin: Ints
    end: Ints
    ceil: bool

    @classmethod
    def of(cls, op: Any, size: Ints, kernel: Ints) -> Windows:
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
        return cls(size, kernel, tuple(strides), tuple(dilations), begin, end, ceil)

    @property
    def plain(self) -> bool:
        """Whether torch's pools take these pads: the same on both sides, at most half a kernel."""
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
