"""Convolutions and poolings with other pads, and other gradients at ties."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from d5test.reference.formulas.table import Table, mixed
from d5test.reference.operators.quantisation import ConvInteger, QLinearConv
from d5test.reference.operators.windows import (
    AveragePool,
    Conv,
    GlobalMaxPool,
    LpPool,
    MaxPool,
    Windows,
)


class IndicesOfPlane(MaxPool):
    """MaxPool whose indices are counted within each channel of each sample."""

    def forward(self, x):
        y, indices = super().forward(x)
        return y, indices % prod(x.shape[2:])


class Cropped(Windows):
    """Windows whose padding may be negative: elements at the edges that none of them sees."""

    @cached_property
    def _inner(self) -> Windows:
        size = tuple(
            n + min(b, 0) + min(e, 0)
            for n, b, e in zip(self.size, self.begin, self.end, strict=True)
        )
        plain = {field.name: getattr(self, field.name) for field in fields(Windows)}
        pads = {name: tuple(max(p, 0) for p in plain[name]) for name in ("begin", "end")}
        return Windows(**{**plain, **pads, "size": size})

    @property
    def _kept(self) -> tuple[Any, ...]:
        pads = zip(self.begin, self.end, strict=True)
        return (..., *(slice(max(0, -b), None if e >= 0 else e) for b, e in pads))

    def view(self, x, fill=0.0):
        if 0 in self.out:
            return np.zeros_like(x, shape=(*x.shape[:2], *self.out, *self.kernel))
        return self._inner.view(x[self._kept], fill)

    def scatter(self, windows):
        x = np.zeros_like(windows, shape=(*windows.shape[:2], *self.size))
        if 0 not in self.out:
            x[self._kept] = self._inner.scatter(windows)
        return x

    def counted(self, *, padding):
        return np.ones(self.out) if 0 in self.out else self._inner.counted(padding=padding)


def same_windows(op: Any, x_shape: tuple[int, ...], spared: int = 0) -> Windows:
    """SAME windows for the kernel without its dilations, with pads that are not bounded below.

    Of each axis the padding is (ceil(n / stride) - 1) stride + kernel - n. A dilated kernel gets
    too little, so that there are too few windows. Where the stride exceeds the kernel by two it is
    negative, and windows begin at 1. Quotients are rounded towards zero, as in C. Of a negative
    padding as many elements as are `spared` are not cut off.
    """
    size, kernel = x_shape[2:], op.kernel_shape
    ones = (1,) * len(size)
    strides, dilations = op.strides or ones, op.dilations or ones
    first = op.auto_pad == "SAME_LOWER"
    total = [(-(-n // s) - 1) * s + k - n for n, s, k in zip(size, strides, kernel, strict=True)]
    begin = tuple(int((t + first + spared * (t < 0)) / 2) for t in total)
    end = tuple(t - b for t, b in zip(total, begin, strict=True))
    room = zip(size, total, kernel, dilations, strides, strict=True)
    return Cropped(
        size=size, kernel=kernel, strides=strides, dilations=dilations, begin=begin, end=end,
        out=tuple(max(0, int((n + t - (k - 1) * d - 1) / s) + 1) for n, t, k, d, s in room),
    )  # fmt: skip


class Undilated:
    """A pooling with `same_windows`."""

    def windows(self, x_shape):
        same = self.auto_pad.startswith("SAME")
        return same_windows(self, x_shape) if same else super().windows(x_shape)


class ConvOfUndilated:
    """A convolution with `same_windows`, of which none is cut off at the end."""

    def windows(self, x_shape, w_shape):
        if not self.auto_pad.startswith("SAME"):
            return super().windows(x_shape, w_shape)
        windows = same_windows(self.with_(kernel_shape=w_shape[2:]), x_shape, spared=1)
        return replace(windows, end=tuple(max(0, e) for e in windows.end))


class MaxPoolOfUndilated(Undilated, MaxPool):
    """MaxPool with `same_windows`. A window that covers no element has no maximum: NaN.

    A negative padding at the end makes the windows fewer, and is ignored where they read.
    """

    def windows(self, x_shape):
        windows = super().windows(x_shape)
        return replace(windows, end=tuple(max(0, e) for e in windows.end))

    def forward(self, x):
        y, indices = super().forward(x)
        return y if y.dtype.kind in "iu" else np.where(y == -np.inf, np.nan, y), indices


class AveragePoolOfPaddedPositions(AveragePool):
    """AveragePool whose gradient takes a position in x for one in the padded x."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        windows = self.windows(x.shape)
        sides = zip(windows.begin, windows.size, windows.end, strict=True)
        none = (0,) * len(windows.size)
        padded = replace(windows, size=tuple(map(sum, sides)), begin=none, end=none)
        dmean = dy / windows.counted(padding=bool(self.count_include_pad))
        dtaps = dmean.reshape(*dy.shape, *(1,) * len(windows.kernel))
        dx = padded.scatter(np.broadcast_to(dtaps, (*dy.shape, *windows.kernel)))
        return dx[(..., *map(slice, windows.size))]


@dataclass(frozen=True, kw_only=True, repr=False)
class LowestMaxima(MaxPool):
    """MaxPool that starts from the lowest number, which is larger than minus infinity."""

    largest: float

    def forward(self, x):
        y, indices = super().forward(x)
        return np.maximum(y, -self.largest), indices


@dataclass(frozen=True, kw_only=True, repr=False)
class LowestOfChannels(GlobalMaxPool):
    """GlobalMaxPool that starts from the lowest number, which is larger than minus infinity."""

    largest: float

    def forward(self, x):
        return np.maximum(super().forward(x), -self.largest)


class MaxPoolOfEach(MaxPool):
    """MaxPool whose gradient goes whole to each element of a window near its maximum."""

    follows_shifts = False
    near = 1e-5

    def backward(self, grads, inputs, outputs):
        (dy, _), (x,), (y, _) = grads, inputs, outputs
        windows = self.windows(x.shape)
        whole = (..., *(np.newaxis,) * len(self.kernel_shape))
        equal = np.abs(windows.view(x, fill=-np.inf) - y[whole]) < self.near
        return windows.scatter(equal * dy[whole])


FORMULAS: Table = {
    "SAME of the undilated kernel": {
        **mixed(Undilated, AveragePool, LpPool),
        MaxPool: MaxPoolOfUndilated,
        **mixed(ConvOfUndilated, Conv, ConvInteger, QLinearConv),
    },
    "positions in the padded input": {AveragePool: AveragePoolOfPaddedPositions},
    "indices of the plane": {MaxPool: IndicesOfPlane},
    "lowest for minus infinity": {MaxPool: LowestMaxima, GlobalMaxPool: LowestOfChannels},
    "whole gradient for all near the maximum": {MaxPool: MaxPoolOfEach},
}
