"""Convolutions over one, two or three spatial axes, and their adjoints.

A convolution is one matrix product in each group: the elements under each window, laid out as a
column, under the filters as rows. Its adjoint takes the same matrices the other way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from d5test.case import Batch, Operator
from d5test.reference.operators.windows import Windows, split_padding

__all__ = ["Conv", "ConvTranspose"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Conv(Operator):
    """Cross-correlation with a bank of filters. ONNX Conv-22.

    y[n, m, o] = b[m] + sum over c, k of x[n, c, o stride + k dilation - pad] w[m, c, k]

    x: (n, c, *size), w: (m, c / group, *kernel), b: (m,); y: (n, m, *out).
    """

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    since = 22

    def windows(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> Windows:
        """Where the filters lie on x."""
        return Windows.on_input(
            x_shape[2:], w_shape[2:], self.strides, self.dilations, self.pads, self.auto_pad
        )

    def forward(self, x, w, b=None):
        windows = self.windows(x.shape, w.shape)
        columns = as_columns(windows.view(x), self.group, x.ndim - 2)
        y = from_columns(as_filters(w, self.group) @ columns, x.shape[0], windows.out)
        return y if b is None else y + along_channels(b, y.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, w, *bias) = grads, inputs
        windows = self.windows(x.shape, w.shape)
        columns = as_columns(windows.view(x), self.group, x.ndim - 2)
        dy_columns = as_columns(dy, self.group, x.ndim - 2)
        dw = (dy_columns @ columns.swapaxes(1, 2)).reshape(w.shape)
        dcolumns = as_filters(w, self.group).swapaxes(1, 2) @ dy_columns
        dx = windows.scatter(from_columns(dcolumns, x.shape[0], windows.out, w.shape[2:]))
        return dx, dw, *bias_gradient(dy, bias)

    def batch(self, *shapes):
        return Batch((0, *(None for _ in shapes[1:])), (0,))

    def multiplications(self, *shapes):
        x, w = shapes[:2]
        return x[0] * math.prod(self.windows(x, w).out) * math.prod(w)


@dataclass(frozen=True, kw_only=True, repr=False)
class ConvTranspose(Operator):
    """The adjoint of a convolution: every element of x spreads a filter. ONNX ConvTranspose-22.

    y[n, m, i stride + k dilation - pad] += x[n, c, i] w[c, m, k], and b[m] is added

    x: (n, c, *size), w: (c, m / group, *kernel), b: (m,); y: (n, m, *out).
    """

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    output_padding: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    since = 22

    def windows(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> Windows:
        """Where the filters lie on y: one window for each element of x."""
        size, kernel = x_shape[2:], w_shape[2:]
        rank = len(size)
        strides, dilations = self.strides or (1,) * rank, self.dilations or (1,) * rank
        full = tuple(
            s * (n - 1) + p + (k - 1) * d + 1
            for s, n, p, k, d in zip(
                strides, size, self.output_padding or (0,) * rank, kernel, dilations, strict=True
            )
        )
        if self.output_shape or self.auto_pad.startswith("SAME"):
            out = self.output_shape or tuple(n * s for n, s in zip(size, strides, strict=True))
            total = tuple(max(0, f - o) for f, o in zip(full, out[-rank:], strict=True))
            begin, end = split_padding(total, upper=self.auto_pad == "SAME_UPPER")
            out = out[-rank:]
        else:
            pads = self.pads if self.pads and self.auto_pad == "NOTSET" else (0,) * 2 * rank
            begin, end = pads[:rank], pads[rank:]
            out = tuple(f - b - e for f, b, e in zip(full, begin, end, strict=True))
        return Windows(
            size=out,
            kernel=kernel,
            strides=strides,
            dilations=dilations,
            begin=begin,
            end=end,
            out=size,
        )

    def forward(self, x, w, b=None):
        windows = self.windows(x.shape, w.shape)
        columns = as_columns(x, self.group, x.ndim - 2)
        columns = as_filters(w, self.group).swapaxes(1, 2) @ columns
        y = windows.scatter(from_columns(columns, x.shape[0], windows.out, w.shape[2:]))
        return y if b is None else y + along_channels(b, y.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, w, *bias) = grads, inputs
        windows = self.windows(x.shape, w.shape)
        dcolumns = as_columns(windows.view(dy), self.group, x.ndim - 2)
        columns = as_columns(x, self.group, x.ndim - 2)
        dw = (columns @ dcolumns.swapaxes(1, 2)).reshape(w.shape)
        dx = from_columns(as_filters(w, self.group) @ dcolumns, x.shape[0], windows.out)
        return dx, dw, *bias_gradient(dy, bias)

    def batch(self, *shapes):
        return Batch((0, *(None for _ in shapes[1:])), (0,))

    def multiplications(self, *shapes):
        x, w = shapes[:2]
        return x[0] * math.prod(x[2:]) * math.prod(w)


def as_columns(x, group, rank):
    """One column for each sample and position: (n, c, *out, *kernel) to (g, c/g kernel, n out).

    `rank` is the number of axes in `out`; there may be no kernel axes.
    """
    n, c, *rest = x.shape
    out, kernel = math.prod(rest[:rank]), math.prod(rest[rank:])
    axes = (1, *range(2 + rank, x.ndim), 0, *range(2, 2 + rank))
    return x.transpose(axes).reshape(group, c // group * kernel, n * out)


def from_columns(columns, n, out, kernel=()):
    """The inverse of `as_columns`: (g, c/g kernel, n out) to (n, c, *out, *kernel)."""
    group, rows, _ = columns.shape
    x = columns.reshape(group * rows // math.prod(kernel), *kernel, n, *out)
    k = len(kernel)
    return x.transpose(1 + k, 0, *range(2 + k, x.ndim), *range(1, 1 + k))


def as_filters(w, group):
    """The filters of each group as rows: (m, c, *kernel) to (g, m/g, c kernel)."""
    return w.reshape(group, w.shape[0] // group, math.prod(w.shape[1:]))


def along_channels(b, rank):
    """(m,) to (m, 1, ..., 1), which broadcasts against (n, m, *out) of `rank` axes."""
    return b.reshape(-1, *(1,) * (rank - 2))


def bias_gradient(dy, bias):
    """The gradient of the bias as a tuple: empty if no bias was given, None if it is absent."""
    return tuple(None if b is None else dy.sum((0, *range(2, dy.ndim))) for b in bias)
