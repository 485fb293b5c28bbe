"""Convolutions over one, two or three spatial axes, and their adjoints.

A convolution is one matrix product in each group: the elements under each window, laid out as a
row, times the filters. Its adjoint takes the same matrices the other way.
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
        rows = as_rows(windows.view(x), self.group, x.ndim - 2)
        y = rows @ as_filters(w, self.group).swapaxes(1, 2)
        y = from_rows(y, x.shape[0], windows.out)
        return y if b is None else y + along_channels(b, y.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, w, *bias) = grads, inputs
        windows = self.windows(x.shape, w.shape)
        rows = as_rows(windows.view(x), self.group, x.ndim - 2)
        dy_rows = as_rows(dy, self.group, dy.ndim - 2)
        dw = (dy_rows.swapaxes(1, 2) @ rows).reshape(w.shape)
        drows = dy_rows @ as_filters(w, self.group)
        dx = windows.scatter(from_rows(drows, x.shape[0], windows.out, w.shape[2:]))
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
        rows = as_rows(x, self.group, x.ndim - 2) @ as_filters(w, self.group)
        y = windows.scatter(from_rows(rows, x.shape[0], windows.out, w.shape[2:]))
        return y if b is None else y + along_channels(b, y.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, w, *bias) = grads, inputs
        windows = self.windows(x.shape, w.shape)
        drows = as_rows(windows.view(dy), self.group, dy.ndim - 2)
        dw = (as_rows(x, self.group, x.ndim - 2).swapaxes(1, 2) @ drows).reshape(w.shape)
        dx = from_rows(drows @ as_filters(w, self.group).swapaxes(1, 2), x.shape[0], windows.out)
        return dx, dw, *bias_gradient(dy, bias)

    def batch(self, *shapes):
        return Batch((0, *(None for _ in shapes[1:])), (0,))

    def multiplications(self, *shapes):
        x, w = shapes[:2]
        return x[0] * math.prod(x[2:]) * math.prod(w)


def as_rows(x, group, rank):
    """One row for each sample and position: (n, c, *out, *kernel) to (g, n out, c/g kernel).

    `rank` is the number of axes in `out`; there may be no kernel axes.
    """
    n, c, *rest = x.shape
    out, kernel = math.prod(rest[:rank]), math.prod(rest[rank:])
    x = x.reshape(n, group, c // group, out, kernel).transpose(1, 0, 3, 2, 4)
    return x.reshape(group, n * out, c // group * kernel)


def from_rows(rows, n, out, kernel=()):
    """The inverse of `as_rows`: (g, n out, c/g kernel) to (n, c, *out, *kernel)."""
    group, _, columns = rows.shape
    c = columns // math.prod(kernel)
    x = rows.reshape(group, n, math.prod(out), c, math.prod(kernel)).transpose(1, 0, 3, 2, 4)
    return x.reshape(n, group * c, *out, *kernel)


def as_filters(w, group):
    """The filters of each group as rows: (m, c, *kernel) to (g, m/g, c kernel)."""
    return w.reshape(group, w.shape[0] // group, math.prod(w.shape[1:]))


def along_channels(b, rank):
    """(m,) to (m, 1, ..., 1), which broadcasts against (n, m, *out) of `rank` axes."""
    return b.reshape(-1, *(1,) * (rank - 2))


def bias_gradient(dy, bias):
    """The gradient of the bias as a tuple: empty if no bias was given, None if it is absent."""
    return tuple(None if b is None else dy.sum((0, *range(2, dy.ndim))) for b in bias)
