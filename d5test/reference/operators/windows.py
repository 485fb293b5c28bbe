"""Where the windows of a kernel lie on the spatial axes of a tensor.

Convolutions and poolings slide a kernel, dilated, with a stride, over the padded spatial axes of
`(n, c, *size)`. This module holds that geometry as ONNX defines it (Conv-22, ConvTranspose-22,
MaxPool-22, AveragePool-22), and the two linear maps that go with it: `view` shows the elements
that each window covers, `scatter` adds back what each window gives, and is `view`'s adjoint.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Windows:
    """`out` windows of `kernel` elements, `strides` apart, on axes of `size` padded by pads.

    A window may reach beyond the padding behind (ceil_mode); what lies there counts neither as
    an element nor as padding.
    """

    size: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    begin: Sizes
    end: Sizes
    out: Sizes

    @classmethod
    def on_input(
        cls,
        size: Sizes,
        kernel: Sizes,
        strides: Sizes | None,
        dilations: Sizes | None,
        pads: Sizes | None,
        auto_pad: str,
        ceil_mode: bool = False,
    ) -> Self:
        """The windows of a convolution or a pooling over axes of `size`."""
        rank = len(size)
        strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
        extent = _extent(kernel, dilations)
        if auto_pad.startswith("SAME"):
            out = tuple(math.ceil(n / s) for n, s in zip(size, strides, strict=True))
            total = tuple(
                max(0, (o - 1) * s + e - n)
                for o, s, e, n in zip(out, strides, extent, size, strict=True)
            )
            begin, end = split_padding(total, upper=auto_pad == "SAME_UPPER")
        else:
            pads = pads if pads and auto_pad == "NOTSET" else (0,) * 2 * rank
            begin, end = pads[:rank], pads[rank:]
            out = tuple(
                _count(n, b, f, e, s, ceil_mode and auto_pad == "NOTSET")
                for n, b, f, e, s in zip(size, begin, end, extent, strides, strict=True)
            )
        return cls(
            size=size,
            kernel=kernel,
            strides=strides,
            dilations=dilations,
            begin=begin,
            end=end,
            out=out,
        )

    @property
    def _padding(self) -> list[tuple[int, int]]:
        """Zeros before and behind, so that every window fits."""
        extent = _extent(self.kernel, self.dilations)
        return [
            (b, max(f, (o - 1) * s + e - n - b))
            for n, b, f, o, s, e in zip(
                self.size, self.begin, self.end, self.out, self.strides, extent, strict=True
            )
        ]

    def view(self, x: Any, fill: float = 0.0) -> Any:
        """The elements under each window: `(n, c, *size)` to `(n, c, *out, *kernel)`."""
        padded = np.pad(x, [(0, 0), (0, 0), *self._padding], constant_values=fill)
        axes = tuple(range(2, x.ndim))
        extent = _extent(self.kernel, self.dilations)
        every: Any = np.lib.stride_tricks.sliding_window_view(padded, extent, axes)
        starts = tuple(slice(0, o * s, s) for o, s in zip(self.out, self.strides, strict=True))
        steps = tuple(slice(None, None, d) for d in self.dilations)
        return every[(..., *starts, *steps)]

    def scatter(self, windows: Any) -> Any:
        """The sum of what the windows give to each element: `(n, c, *out, *kernel)` to
        `(n, c, *size)`."""
        padding = self._padding
        padded = [b + n + f for n, (b, f) in zip(self.size, padding, strict=True)]
        x: Any = np.zeros_like(windows, shape=(*windows.shape[:2], *padded))
        for tap in itertools.product(*map(range, self.kernel)):
            covered = tuple(
                slice(k * d, k * d + o * s, s)
                for k, d, o, s in zip(tap, self.dilations, self.out, self.strides, strict=True)
            )
            x[(..., *_cut(covered, padded))] += windows[(..., *tap)]
        return x[(..., *(slice(b, b + n) for n, b in zip(self.size, self.begin, strict=True)))]

    def counted(self, *, padding: bool) -> Any:
        """How many elements each window covers, `(*out,)`; with `padding`, the padded ones too."""
        ones = np.ones((1, 1, *self.size))
        if padding:
            pads = zip(self.begin, self.end, strict=True)
            ones = np.pad(ones, [(0, 0), (0, 0), *pads], constant_values=1.0)
            inside = Windows(
                size=ones.shape[2:],
                kernel=self.kernel,
                strides=self.strides,
                dilations=self.dilations,
                begin=(0,) * len(self.size),
                end=(0,) * len(self.size),
                out=self.out,
            )
            return inside.counted(padding=False)
        covered = self.view(ones)[0, 0]
        return covered.sum(axis=tuple(range(len(self.size), 2 * len(self.size))))


def split_padding(total: Sizes, *, upper: bool) -> tuple[Sizes, Sizes]:
    """Padding before and behind; of an odd total the larger half lies behind if `upper`."""
    less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return (less, more) if upper else (more, less)


def _extent(kernel: Sizes, dilations: Sizes) -> Sizes:
    """How many elements a dilated kernel spans."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))


def _count(size: int, begin: int, end: int, extent: int, stride: int, ceil_mode: bool) -> int:
    """Windows along one axis. None starts in the padding behind, also with `ceil_mode`."""
    room = size + begin + end - extent
    if not ceil_mode:
        return max(0, room // stride + 1)
    count = -(-room // stride) + 1
    return max(0, count - ((count - 1) * stride >= size + begin))


def _cut(slices: tuple[slice, ...], sizes: list[int]) -> tuple[slice, ...]:
    """The slices, none of them reaching beyond its axis."""
    return tuple(
        slice(s.start, min(s.stop, n), s.step) for s, n in zip(slices, sizes, strict=True)
    )
