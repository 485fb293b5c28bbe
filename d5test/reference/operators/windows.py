"""Convolutions over one, two or three spatial axes and their adjoints, and poolings.

Both slide a kernel, dilated, with a stride, over the padded spatial axes of `(n, c, *size)`.
`Windows` holds that geometry as ONNX defines it (Conv-22, ConvTranspose-22, MaxPool-22,
AveragePool-22), and the two linear maps that go with it: `view` shows the elements that each
window covers, `scatter` adds back what each window gives, and is `view`'s adjoint.

A convolution is one matrix product in each group: the elements under each window, laid out as a
column, under the filters as rows. Its adjoint takes the same matrices the other way.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.broadcasting import PerSample, along_channels
from d5test.reference.operators.elementwise import Swish
from d5test.reference.operators.reductions import ReduceMax

__all__ = ["Conv", "ConvTranspose"]
__all__ += ["AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool"]
__all__ += ["MaxPool"]
__all__ += ["CausalConvWithState", "Col2Im", "MaxUnpool"]

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
    def on_input(cls, op: Any, size: Sizes, kernel: Sizes) -> Self:
        """The windows of `op`, a convolution or a pooling, over axes of `size`."""
        rank = len(size)
        strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
        extent = _extent(kernel, dilations)
        if op.auto_pad.startswith("SAME"):
            out = tuple(math.ceil(n / s) for n, s in zip(size, strides, strict=True))
            total = tuple(
                max(0, (o - 1) * s + e - n)
                for o, s, e, n in zip(out, strides, extent, size, strict=True)
            )
            begin, end = split_padding(total, upper=op.auto_pad == "SAME_UPPER")
        else:
            pads = op.pads if op.pads and op.auto_pad == "NOTSET" else (0,) * 2 * rank
            begin, end = pads[:rank], pads[rank:]
            ceil_mode = op.auto_pad == "NOTSET" and bool(getattr(op, "ceil_mode", 0))
            out = tuple(
                _count(n, b, f, e, s, ceil_mode)
                for n, b, f, e, s in zip(size, begin, end, extent, strides, strict=True)
            )
        return cls(
            size=size, kernel=kernel, strides=strides, dilations=dilations,
            begin=begin, end=end, out=out,
        )  # fmt: skip

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
        if math.prod(self.kernel) > math.prod(self.out):
            # taps and windows may change roles; the fewer there are, the less memory it takes
            inverse = replace(
                self, kernel=self.out, out=self.kernel,
                strides=self.dilations, dilations=self.strides,
            )  # fmt: skip
            rank = len(self.kernel)
            return inverse.scatter(np.moveaxis(windows, range(-rank, 0), range(2, 2 + rank)))
        padded = [b + n + f for n, (b, f) in zip(self.size, self._padding, strict=True)]
        x: Any = np.zeros_like(windows, shape=(*windows.shape[:2], *padded))
        for first, taps in self._meeting().items():
            ends = zip(first, self.strides, strict=True)
            every: Any = (..., *(slice(begin, None, stride) for begin, stride in ends))
            terms: Any = np.zeros_like(windows, shape=(len(taps), *x[every].shape))
            for term, (tap, begin) in enumerate(taps):
                covered = (slice(b, b + o) for b, o in zip(begin, self.out, strict=True))
                terms[(term, ..., *covered)] = windows[(..., *tap)]
            x[every] = np.add.accumulate(terms)[-1]  # in any order
        return x[(..., *(slice(b, b + n) for n, b in zip(self.size, self.begin, strict=True)))]

    def _meeting(self) -> Mapping[Sizes, list[tuple[Sizes, Sizes]]]:
        """The taps that fall on the same elements, by the first of these, which are strides apart;
        each with how many strides behind it its window begins."""
        meeting: dict[Sizes, list[tuple[Sizes, Sizes]]] = defaultdict(list)
        for tap in itertools.product(*map(range, self.kernel)):
            places = zip(tap, self.dilations, self.strides, strict=True)
            begin, first = zip(*(divmod(k * d, s) for k, d, s in places), strict=True)
            meeting[tuple(first)].append((tap, tuple(begin)))
        return meeting

    def counted(self, *, padding: bool) -> Any:
        """How many elements each window covers, `(*out,)`; with `padding`, the padded ones too."""
        ones = np.ones((1, 1, *self.size))
        if padding:
            pads = zip(self.begin, self.end, strict=True)
            ones = np.pad(ones, [(0, 0), (0, 0), *pads], constant_values=1.0)
            none = (0,) * len(self.size)
            inside = replace(self, size=ones.shape[2:], begin=none, end=none)
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


@dataclass(frozen=True, kw_only=True, repr=False)
class Conv(PerSample):
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
        return Windows.on_input(self, x_shape[2:], w_shape[2:])

    def forward(self, x, w, b=None):
        y = correlated(x, w, self.windows(x.shape, w.shape), self.group)
        return y if b is None else y + along_channels(b, y.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, w, *bias) = grads, inputs
        windows = self.windows(x.shape, w.shape)
        dx = spread(dy, w, windows, self.group)
        dw = filter_gradient(windows.view(x), dy, w, self.group)
        return dx, dw, *bias_gradient(dy, bias)

    def multiplications(self, *shapes):
        x, w = shapes[:2]
        return x[0] * math.prod(self.windows(x, w).out) * math.prod(w)


@dataclass(frozen=True, kw_only=True, repr=False)
class ConvTranspose(PerSample):
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
            size=out, kernel=kernel, strides=strides, dilations=dilations,
            begin=begin, end=end, out=size,
        )  # fmt: skip

    def forward(self, x, w, b=None):
        windows = self.windows(x.shape, w.shape)
        y = spread(x, w, windows, self.group)
        return y if b is None else y + along_channels(b, y.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, w, *bias) = grads, inputs
        windows = self.windows(x.shape, w.shape)
        dx = correlated(dy, w, windows, self.group)
        dw = filter_gradient(windows.view(dy), x, w, self.group)
        return dx, dw, *bias_gradient(dy, bias)

    def multiplications(self, *shapes):
        x, w = shapes[:2]
        return x[0] * math.prod(x[2:]) * math.prod(w)


def correlated(x, w, windows, group):
    """Each window of x times each filter: (n, c, *size) to (n, m, *out)."""
    return filtered(windows.view(x), w, group)


def filtered(patches, w, group):
    """What lies under each window times each filter: (n, c, *out, *kernel) to (n, m, *out)."""
    n, rank = len(patches), w.ndim - 2
    columns = as_filters(w, group) @ as_columns(patches, group, rank)
    return from_columns(columns, n, patches.shape[2 : 2 + rank])


def patch_gradient(dy, w, group):
    """The adjoint of `filtered` in the patches."""
    columns = as_filters(w, group).swapaxes(1, 2) @ as_columns(dy, group, dy.ndim - 2)
    return from_columns(columns, len(dy), dy.shape[2:], w.shape[2:])


def spread(y, w, windows, group):
    """The adjoint of `correlated` in x: (n, m, *out) to (n, c, *size)."""
    return windows.scatter(patch_gradient(y, w, group))


def filter_gradient(patches, dy, w, group):
    """The gradient of w, under the gradient dy of `filtered`."""
    both = (as_columns(a, group, dy.ndim - 2) for a in (dy, patches))
    positions = len(dy), math.prod(dy.shape[2:])
    rows, columns = (a.reshape(*a.shape[:2], *positions) for a in both)
    return np.einsum("gmnp,gcnp->gmc", rows, columns).reshape(w.shape)


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


def bias_gradient(dy, bias):
    """The gradient of the bias as a tuple: empty if no bias was given, None if it is absent."""
    return tuple(None if b is None else dy.sum((0, *range(2, dy.ndim))) for b in bias)


@dataclass(frozen=True, kw_only=True, repr=False)
class _Pool(PerSample):
    """What poolings have in common: where their windows lie. x: (n, c, *size).

    The samples are those of y alone: MaxPool's indices number the elements of the whole batch.
    """

    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    since = 22

    def windows(self, x_shape: tuple[int, ...]) -> Windows:
        """Where the windows lie on x."""
        return Windows.on_input(self, x_shape[2:], self.kernel_shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class MaxPool(_Pool):
    """The largest element in each window. ONNX MaxPool-22.

    Always both outputs: y, and the position of each maximum in the flattened x, padding not
    counted; `storage_order` 1 numbers the spatial axes of a channel in column-major order.
    Every window must cover an element.
    """

    storage_order: int = 0
    stopped_outputs = (1,)
    follows_shifts = True

    def forward(self, x):
        windows = self.windows(x.shape)
        numbers = x.astype(float) if x.dtype.kind in "iu" else x  # of eight bits, says ONNX
        elements = self._flat(windows.view(numbers, fill=-np.inf))
        order = "F" if self.storage_order else "C"
        channel = np.arange(np.prod(x.shape[2:], dtype=int)).reshape(x.shape[2:], order=order)
        first = np.arange(x.shape[0] * x.shape[1]) * channel.size
        positions = first.reshape(*x.shape[:2], *(1,) * channel.ndim) + channel
        largest = np.argmax(elements, axis=-1, keepdims=True)
        indices = np.take_along_axis(self._flat(windows.view(positions)), largest, -1)
        y = elements.max(-1)
        if numbers is not x:
            y = np.maximum(y, np.iinfo(x.dtype).min).astype(x.dtype)
        return y, indices.squeeze(-1)

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
class GlobalAveragePool(PerSample):
    """The mean of each channel: (n, c, *size) to (n, c, 1, ...). ONNX GlobalAveragePool-22."""

    since = 22

    def forward(self, x):
        return x.mean(tuple(range(2, x.ndim)), keepdims=True)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        size = np.prod(x.shape[2:], dtype=int)
        return np.broadcast_to(dy / size, x.shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class GlobalMaxPool(PerSample):
    """The largest element of each channel: (n, c, *size) to (n, c, 1, ...). ONNX GlobalMaxPool-22.

    The gradient goes to the element it was taken from, at a tie to the first of them.
    """

    since = 22
    follows_shifts = True

    def forward(self, x):
        return x.max(tuple(range(2, x.ndim)), keepdims=True)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,), (y,) = grads, inputs, outputs
        return ReduceMax().gradient(dy, x, y, tuple(range(2, x.ndim)))


def norm(x, p, axes):
    """(sum of |x|^p)^(1 / p) over `axes`, dimensions kept."""
    return (np.abs(x) ** p).sum(axes, keepdims=True) ** (1 / p)


def norm_gradient(dy, x, y, p):
    """dx, from dy and y = norm(x, p, axes)."""
    return dy * np.sign(x) * (np.abs(x) / y) ** (p - 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class GlobalLpPool(PerSample):
    """(sum of |x|^p)^(1 / p) of each channel. ONNX GlobalLpPool-22.

    x: (n, c, *size); y: (n, c, 1, ...).
    """

    p: int = 2
    since = 22

    def forward(self, x):
        return norm(x, self.p, tuple(range(2, x.ndim)))

    def backward(self, grads, inputs, outputs):
        (dy,), (x,), (y,) = grads, inputs, outputs
        return norm_gradient(dy, x, y, self.p)


@dataclass(frozen=True, kw_only=True, repr=False)
class LpPool(_Pool):
    """(sum of |x|^p)^(1 / p) of each window. ONNX LpPool-22."""

    p: int = 2

    def forward(self, x):
        taps = tuple(range(-len(self.kernel_shape), 0))
        return norm(self.windows(x.shape).view(x), self.p, taps).squeeze(taps)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,), (y,) = grads, inputs, outputs
        windows = self.windows(x.shape)
        dy, y = (a.reshape(*a.shape, *(1,) * len(self.kernel_shape)) for a in (dy, y))
        return windows.scatter(norm_gradient(dy, windows.view(x), y, self.p))


@dataclass(frozen=True, kw_only=True, repr=False)
class Col2Im(PerSample):
    """An image as the sum of its windows, which are columns of a matrix. ONNX Col2Im-18.

    x: (n, c taps, windows), image_shape, block_shape: integers, one for each axis; y: (n, c,
    *image_shape). It is the adjoint of taking the windows.
    """

    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    since = 18
    auto_pad = "NOTSET"

    def windows(self, image_shape: Any, block_shape: Any) -> Windows:
        """Where the windows lie on y."""
        size, kernel = (tuple(int(n) for n in shape) for shape in (image_shape, block_shape))
        return Windows.on_input(self, size, kernel)

    def forward(self, x, image_shape, block_shape):
        at = self.windows(image_shape, block_shape)
        n, rows, _ = x.shape
        taps = x.reshape(n, rows // math.prod(at.kernel), *at.kernel, *at.out)
        k = len(at.kernel)
        return at.scatter(np.moveaxis(taps, range(2, 2 + k), range(-k, 0)))

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *shapes) = grads, inputs
        at = self.windows(*shapes)
        k = len(at.kernel)
        return np.moveaxis(at.view(dy), range(-k, 0), range(2, 2 + k)).reshape(x.shape), None, None


@dataclass(frozen=True, kw_only=True, repr=False)
class CausalConvWithState(PerSample):
    """Each channel's convolution with the steps up to each, and the last ones for the next call.

    x, y: (n, c, steps), w: (c, 1, k), b: (c,), past_state, present_state: (n, c, k - 1), zeros if
    absent. `activation` "silu" or "swish" is that of y. There is no gradient of past_state.
    ONNX CausalConvWithState-27; Gu and Dao, arXiv 2312.00752, figure 3.
    """

    activation: str = "none"
    since = 27

    def forward(self, x, w, b=None, past_state=None):
        steps = self.steps(x, w, past_state)
        y = Conv(group=len(w)).forward(steps, w, b)
        return y if self.activation == "none" else Swish().forward(y), steps[:, :, x.shape[2] :]

    def backward(self, grads, inputs, outputs):
        (dy, dstate), (x, w, *rest) = grads, inputs
        b, past_state = (*rest, None, None)[:2]
        steps, conv = self.steps(x, w, past_state), Conv(group=len(w))
        if self.activation != "none":
            dy = Swish().backward((dy,), (conv.forward(steps, w, b),), None)
        dsteps, dw, db = conv.backward((dy,), (steps, w, b), None)
        dsteps[:, :, x.shape[2] :] += dstate
        return (dsteps[:, :, w.shape[2] - 1 :], dw, db, None)[: len(inputs)]

    def batch(self, *shapes):
        along = (0, None, None, 0)[: len(shapes)]
        pairs = zip(along, shapes, strict=True)
        return Batch(tuple(None if s is None else axis for axis, s in pairs), (0, 0))

    def multiplications(self, *shapes):
        x, w = shapes[:2]
        return math.prod(x) * w[2]

    def steps(self, x, w, past_state):
        """The past and x, one behind the other."""
        if past_state is None:
            past_state = np.zeros_like(x, shape=(*x.shape[:2], w.shape[2] - 1))
        return np.concatenate((past_state, x), 2)


@dataclass(frozen=True, kw_only=True, repr=False)
class MaxUnpool(Operator):
    """The inverse of MaxPool, zeros where nothing was the largest. ONNX MaxUnpool-22.

    x, indices: (n, c, *size), what MaxPool returns, where no place is named twice; output_shape:
    integers, the size of y, in whose front corner the rest lies; without it y is (n, c, *out).
    """

    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    since = 22

    def out(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The size that MaxPool pooled to `shape`, the smallest that there is."""
        rank = len(shape) - 2
        pads, strides = self.pads or (0,) * 2 * rank, self.strides or (1,) * rank
        axes = zip(shape[2:], strides, self.kernel_shape, pads, pads[rank:], strict=False)
        return (*shape[:2], *((n - 1) * s + k - b - e for n, s, k, b, e in axes))

    def forward(self, x, indices, output_shape=None):
        y = np.zeros_like(x, shape=(math.prod(self.out(x.shape)),))
        y[indices.reshape(-1)] = x.reshape(-1)
        y = y.reshape(self.out(x.shape))
        if output_shape is None:
            return y
        whole = [(0, int(m) - n) for m, n in zip(output_shape, y.shape, strict=True)]
        return np.pad(y, whole)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, indices, *rest) = grads, inputs
        dy = dy[tuple(map(slice, self.out(x.shape)))]
        return dy.reshape(-1)[indices], *(None for _ in (indices, *rest))
