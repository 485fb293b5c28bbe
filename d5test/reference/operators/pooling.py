"""Poolings: one number for each window of each channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.windows import Windows

__all__ = ["AveragePool", "GlobalAveragePool", "MaxPool"]


@dataclass(frozen=True, kw_only=True, repr=False)
class _Pool(Operator):
    """What poolings have in common: where their windows lie. x: (n, c, *size)."""

    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    since = 22

    def windows(self, x_shape: tuple[int, ...]) -> Windows:
        """Where the windows lie on x."""
        return Windows.on_input(
            x_shape[2:],
            self.kernel_shape,
            self.strides,
            self.dilations,
            self.pads,
            self.auto_pad,
            ceil_mode=bool(self.ceil_mode),
        )

    def batch(self, *shapes):
        # Of y alone: MaxPool's indices number the elements of the whole batch.
        return Batch((0,), (0,))


@dataclass(frozen=True, kw_only=True, repr=False)
class MaxPool(_Pool):
    """The largest element in each window. ONNX MaxPool-22.

    Always both outputs: y, and the position of each maximum in the flattened x, padding not
    counted; `storage_order` 1 numbers the spatial axes of a channel in column-major order.
    Every window must cover an element.
    """

    storage_order: int = 0
    stopped_outputs = (1,)

    def forward(self, x):
        windows = self.windows(x.shape)
        elements = self._flat(windows.view(x, fill=-np.inf))
        order = "F" if self.storage_order else "C"
        channel = np.arange(np.prod(x.shape[2:], dtype=int)).reshape(x.shape[2:], order=order)
        first = np.arange(x.shape[0] * x.shape[1]) * channel.size
        positions = first.reshape(*x.shape[:2], *(1,) * channel.ndim) + channel
        largest = np.argmax(elements, axis=-1, keepdims=True)
        indices = np.take_along_axis(self._flat(windows.view(positions)), largest, -1)
        return elements.max(-1), indices.squeeze(-1)

    def backward(self, grads, inputs, outputs):
        (dy, _), (x,) = grads, inputs
        windows = self.windows(x.shape)
        elements = windows.view(x, fill=-np.inf)
        taps = self._flat(elements)
        dtaps = np.zeros_like(taps)
        largest = np.argmax(taps, axis=-1, keepdims=True)
        np.put_along_axis(dtaps, largest, np.expand_dims(dy, -1), -1)
        return windows.scatter(dtaps.reshape(elements.shape))

    def _flat(self, elements):
        """(n, c, *out, *kernel) to (n, c, *out, taps)."""
        taps = np.prod(self.kernel_shape, dtype=int)
        return elements.reshape(*elements.shape[: -len(self.kernel_shape)], taps)


@dataclass(frozen=True, kw_only=True, repr=False)
class AveragePool(_Pool):
    """The mean of each window. ONNX AveragePool-22.

    With `count_include_pad` the padding counts as zeros, but never what lies beyond it.
    """

    count_include_pad: int = 0

    def forward(self, x):
        windows = self.windows(x.shape)
        taps = tuple(range(-len(self.kernel_shape), 0))
        counted = windows.counted(padding=bool(self.count_include_pad))
        return (windows.view(x) / np.expand_dims(counted, taps)).sum(taps)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        windows = self.windows(x.shape)
        dmean = dy / windows.counted(padding=bool(self.count_include_pad))
        dtaps = dmean.reshape(*dy.shape, *(1,) * len(self.kernel_shape))
        return windows.scatter(np.broadcast_to(dtaps, (*dy.shape, *self.kernel_shape)))


@dataclass(frozen=True, kw_only=True, repr=False)
class GlobalAveragePool(Operator):
    """The mean of each channel: (n, c, *size) to (n, c, 1, ...). ONNX GlobalAveragePool-22."""

    since = 22

    def forward(self, x):
        return x.mean(tuple(range(2, x.ndim)), keepdims=True)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        size = np.prod(x.shape[2:], dtype=int)
        return np.broadcast_to(dy / size, x.shape)

    def batch(self, *shapes):
        return Batch((0,), (0,))
