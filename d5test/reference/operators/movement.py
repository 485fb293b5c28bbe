"""Operators that move values and compute none: views, joins, selections, borders.

Their gradients move the upstream gradient back, and add where a value went to several places.
"""

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.broadcasting import plain, unbroadcast

__all__ = [
    "Concat", "Dropout", "Expand", "Gather", "Pad", "Reshape", "Slice", "Split", "Tile",
    "Transpose", "Where",
]  # fmt: skip
__all__ += ["Flatten", "Squeeze", "Unsqueeze"]
__all__ += ["CenterCropPad", "DepthToSpace", "ReverseSequence", "SpaceToDepth", "Trilu"]


class View(Operator):
    """The elements of x, in its order, in another shape."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *rest) = grads, inputs
        return dy.reshape(x.shape), *(None for _ in rest)


@dataclass(frozen=True, kw_only=True, repr=False)
class Reshape(View):
    """The same elements in another shape. ONNX Reshape-25.

    shape: (rank,) int64; a 0 copies the size from x unless `allowzero`, one -1 is what is left.
    """

    allowzero: int = 0
    since = 25

    def forward(self, x, shape):
        sizes = [
            x.shape[axis] if n == 0 and not self.allowzero else int(n)
            for axis, n in enumerate(shape)
        ]
        if -1 in sizes:
            rest = -math.prod(sizes)
            sizes[sizes.index(-1)] = x.size // rest if rest else 0
        return x.reshape(tuple(sizes))


@dataclass(frozen=True, kw_only=True, repr=False)
class Transpose(Operator):
    """The axes in the order `perm`; reversed if there is none. ONNX Transpose-25."""

    perm: tuple[int, ...] | None = None
    since = 25

    def forward(self, x):
        return x.transpose(self._order(x.ndim))

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        order = self._order(x.ndim)
        return dy.transpose(tuple(order.index(axis) for axis in range(x.ndim)))

    def _order(self, rank):
        return tuple(reversed(range(rank))) if self.perm is None else self.perm


@dataclass(frozen=True, kw_only=True, repr=False)
class Concat(Operator):
    """Tensors one behind the other along an axis. ONNX Concat-13."""

    axis: int
    since = 13

    def forward(self, *inputs):
        return np.concatenate(inputs, self.axis)

    def backward(self, grads, inputs, outputs):
        (dy,) = grads
        ends = list(accumulate(x.shape[self.axis] for x in inputs))
        return tuple(np.split(dy, ends[:-1], self.axis))


@dataclass(frozen=True, kw_only=True, repr=False)
class Split(Operator):
    """Consecutive parts along an axis, of the sizes `split`, an input. ONNX Split-18.

    Without them there are `num_outputs` parts of equal size; the last may be smaller.
    """

    axis: int = 0
    num_outputs: int | None = None
    since = 18

    def forward(self, x, split=None):
        if split is None:
            size = -(-x.shape[self.axis] // self.num_outputs)
            ends = [size * part for part in range(1, self.num_outputs)]
        else:
            ends = list(accumulate(int(n) for n in split))[:-1]
        return tuple(np.split(x, ends, self.axis))

    def backward(self, grads, inputs, outputs):
        dx = np.concatenate(grads, self.axis)
        return (dx, None)[: len(inputs)]


@dataclass(frozen=True, kw_only=True, repr=False)
class Slice(Operator):
    """Every `steps`-th element from `starts` to before `ends`, along `axes`. ONNX Slice-13.

    Positions count from the end if negative, and are cut to the axis. The four are vectors of
    integers; axes default to the first ones, steps to 1.
    """

    since = 13

    def forward(self, x, starts, ends, axes=None, steps=None):
        return x[self._slices(x.ndim, starts, ends, axes, steps)]

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *positions) = grads, inputs
        dx = np.zeros_like(dy, shape=x.shape)
        dx[self._slices(x.ndim, *positions)] = dy
        return dx, *(None for _ in positions)

    def _slices(self, rank, starts, ends, axes=None, steps=None):
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        slices = [slice(None)] * rank
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            slices[axis] = slice(int(start), int(end), int(step))
        return tuple(slices)


@dataclass(frozen=True, kw_only=True, repr=False)
class Gather(Operator):
    """Entries along an axis by index, negative ones from the end. ONNX Gather-13.

    indices: any shape, integers; their axes stand in y where `axis` stood in x.
    """

    axis: int = 0
    since = 13

    def forward(self, x, indices):
        return np.take(x, indices, self.axis)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, indices) = grads, inputs
        dx = np.zeros_like(dy, shape=x.shape)
        np.add.at(dx, (slice(None),) * (self.axis % x.ndim) + (indices,), dy)
        return dx, None


@dataclass(frozen=True, kw_only=True, repr=False)
class Pad(Operator):
    """A border around a tensor: a constant, or copies of its elements. ONNX Pad-25.

    pads: [begin of each axis, ..., end of each axis, ...], integers; negative ones cut off.
    constant_value: one element, 0 if absent. axes: integers, all if absent. `mode` is
    `constant`, `reflect` (without the edge), `edge` or `wrap`.
    """

    mode: str = "constant"
    since = 25

    def forward(self, x, pads, constant_value=None, axes=None):
        if self.mode == "constant":
            kept, placed, shape = self._overlap(x.shape, pads, axes)
            y = np.zeros_like(x, shape=shape)
            if constant_value is not None:
                y[...] = constant_value
            y[placed] = x[kept]
            return y
        return x.reshape(-1)[self._sources(x.shape, pads, axes)]

    def backward(self, grads, inputs, outputs):
        (dy,), (x, pads, *rest) = grads, inputs
        axes = rest[1] if len(rest) > 1 else None
        dx = np.zeros_like(dy, shape=x.shape)
        if self.mode == "constant":
            kept, placed, _ = self._overlap(x.shape, pads, axes)
            dx[kept] = dy[placed]
        else:
            dx = dx.reshape(-1)
            np.add.at(dx, self._sources(x.shape, pads, axes), dy)
            dx = dx.reshape(x.shape)
        return dx, None, *(None for _ in rest)

    def _widths(self, rank, pads, axes):
        """Begin and end of every axis."""
        widths = [(0, 0)] * rank
        axes = range(rank) if axes is None else axes
        for i, axis in enumerate(axes):
            widths[axis] = (int(pads[i]), int(pads[i + len(axes)]))
        return widths

    def _overlap(self, shape, pads, axes):
        """Where the kept elements stand in x, where in y, and the shape of y."""
        widths = self._widths(len(shape), pads, axes)
        kept = tuple(
            slice(max(0, -b), n - max(0, -e)) for n, (b, e) in zip(shape, widths, strict=True)
        )
        placed = tuple(
            slice(max(0, b), max(0, b) + max(0, s.stop - s.start))
            for s, (b, _) in zip(kept, widths, strict=True)
        )
        return kept, placed, tuple(n + b + e for n, (b, e) in zip(shape, widths, strict=True))

    def _sources(self, shape, pads, axes):
        """For each element of y the position in x, flat, of the one that it copies."""
        kept, _, _ = self._overlap(shape, pads, axes)
        widths = self._widths(len(shape), pads, axes)
        positions = np.arange(math.prod(shape)).reshape(shape)[kept]
        return np.pad(positions, [(max(0, b), max(0, e)) for b, e in widths], mode=self.mode)


@dataclass(frozen=True, kw_only=True, repr=False)
class Where(Operator):
    """x where the condition holds, else y; all three broadcast. ONNX Where-16."""

    since = 16

    def forward(self, condition, x, y):
        return np.where(condition, x, y)

    def backward(self, grads, inputs, outputs):
        (dz,), (condition, x, y) = grads, inputs
        dx = np.where(condition, dz, np.zeros_like(dz))
        dy = np.where(condition, np.zeros_like(dz), dz)
        return None, unbroadcast(dx, x.shape), unbroadcast(dy, y.shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class Expand(Operator):
    """x broadcast together with `shape`, a vector of integers. ONNX Expand-13."""

    since = 13

    def forward(self, x, shape):
        sizes = tuple(int(n) for n in shape)
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, sizes))

    def backward(self, grads, inputs, outputs):
        (dy,), (x, _) = grads, inputs
        return unbroadcast(dy, x.shape), None


@dataclass(frozen=True, kw_only=True, repr=False)
class Tile(Operator):
    """x side by side with itself, `repeats` times along each axis. ONNX Tile-13.

    repeats: (rank,) int64.
    """

    since = 13

    def forward(self, x, repeats):
        return np.tile(x, tuple(int(n) for n in repeats))

    def backward(self, grads, inputs, outputs):
        (dy,), (x, repeats) = grads, inputs
        both = [n for pair in zip(repeats, x.shape, strict=True) for n in map(int, pair)]
        return dy.reshape(tuple(both)).sum(tuple(range(0, len(both), 2))), None


@dataclass(frozen=True, kw_only=True, repr=False)
class Dropout(Operator):
    """Elements set to zero by chance, the others scaled to keep the mean. ONNX Dropout-22.

    y = mask x / (1 - ratio), and the mask, booleans; not in training y = x. ratio: (), 1/2 if
    absent; training_mode: (), false if absent. Of a seed the mask is that of ONNX's own reference.

    No framework draws that one. So `training_mode` may also have the shape of x, if that has axes:
    then it is the mask, and there is no other output. ONNX has no such node.
    """

    seed: int | None = None
    since = 22
    stopped_outputs = (1,)
    arguments = (1,)

    def forward(self, x, ratio=None, training_mode=None):
        if not trains(training_mode):
            return +x, np.ones(x.shape, bool)
        if training_mode.ndim:
            return self.dropped(x, training_mode, ratio)
        drawn = np.random.RandomState(self.seed).uniform(size=x.shape)
        mask = drawn >= (0.5 if ratio is None else float(plain(ratio)))
        return self.dropped(x, mask, ratio), mask

    def backward(self, grads, inputs, outputs):
        (dy, *_), (_, *rest) = grads, inputs
        ratio, training_mode = (*rest, None, None)[:2]
        mask = outputs[1] if len(outputs) > 1 else training_mode
        dx = self.dropped(dy, mask, ratio) if trains(training_mode) else +dy
        return dx, *(None for _ in rest)

    def draws(self, x, ratio=None, training_mode=None):
        if self.seed is not None or not trains(training_mode) or training_mode.ndim:
            return False
        return ratio is None or bool(plain(ratio) > 0)

    def dropped(self, x, mask, ratio):
        return mask * x * (1 / (1 - (0.5 if ratio is None else ratio)))


def trains(training_mode):
    """Whether a Dropout drops: in training, or if it is given its mask."""
    return training_mode is not None and bool(training_mode.ndim or training_mode)


@dataclass(frozen=True, kw_only=True, repr=False)
class Flatten(View):
    """x as a matrix: the axes before `axis` are its rows, the others its columns. ONNX Flatten-25.

    With `axis` 0 there is one row.
    """

    axis: int = 1
    since = 25

    def forward(self, x):
        axis = self.axis + x.ndim if self.axis < 0 else self.axis
        return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@dataclass(frozen=True, kw_only=True, repr=False)
class Squeeze(View):
    """x without axes of size 1: those in `axes`, integers, or all if absent. ONNX Squeeze-25."""

    since = 25

    def forward(self, x, axes=None):
        if axes is None:
            return x.reshape(tuple(n for n in x.shape if n != 1))
        dropped = {int(axis) % x.ndim for axis in axes}
        if any(x.shape[axis] != 1 for axis in dropped):
            raise ValueError(f"axes {sorted(dropped)} of {x.shape} are not all of size 1")
        return x.reshape(tuple(n for axis, n in enumerate(x.shape) if axis not in dropped))


@dataclass(frozen=True, kw_only=True, repr=False)
class Unsqueeze(View):
    """x with axes of size 1 where y's `axes`, integers, are. ONNX Unsqueeze-25."""

    since = 25

    def forward(self, x, axes):
        rank = x.ndim + len(axes)
        new = {int(axis) % rank for axis in axes}
        rest = iter(x.shape)
        return x.reshape(tuple(1 if axis in new else next(rest) for axis in range(rank)))


@dataclass(frozen=True, kw_only=True, repr=False)
class Blocks(Operator):
    """Blocks of b by b pixels, b the `blocksize`, in one channel or as one pixel of b b channels.

    `mode` says what these channels count first: "DCR" the place in the block, "CRD" the channel.
    """

    blocksize: int
    mode: str = "DCR"
    since = 28

    def batch(self, *shapes):
        return Batch((0,), (0,))


@dataclass(frozen=True, kw_only=True, repr=False)
class DepthToSpace(Blocks):
    """Channels as blocks of pixels: (n, c b b, h, w) to (n, c, h b, w b). ONNX DepthToSpace-28."""

    def forward(self, x):
        (n, channels, h, w), b = x.shape, self.blocksize
        c = channels // b**2
        if self.mode == "CRD":
            blocks = x.reshape(n, c, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        else:
            blocks = x.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2)
        return blocks.reshape(n, c, h * b, w * b)

    def backward(self, grads, inputs, outputs):
        return SpaceToDepth(**self.attributes).forward(*grads)


@dataclass(frozen=True, kw_only=True, repr=False)
class SpaceToDepth(Blocks):
    """Blocks of pixels as channels: (n, c, h b, w b) to (n, c b b, h, w). ONNX SpaceToDepth-28."""

    def forward(self, x):
        (n, c, height, width), b = x.shape, self.blocksize
        h, w = height // b, width // b
        order = (0, 1, 3, 5, 2, 4) if self.mode == "CRD" else (0, 3, 5, 1, 2, 4)
        return x.reshape(n, c, h, b, w, b).transpose(order).reshape(n, c * b**2, h, w)

    def backward(self, grads, inputs, outputs):
        return DepthToSpace(**self.attributes).forward(*grads)


@dataclass(frozen=True, kw_only=True, repr=False)
class Trilu(Operator):
    """The upper or lower triangle of matrices (*, n, m), zeros elsewhere. ONNX Trilu-14.

    k: () int64, 0 if absent: the diagonal, counted upwards, at which the triangle begins or ends.
    """

    upper: int = 1
    since = 14

    def forward(self, x, k=None):
        return (np.triu if self.upper else np.tril)(x, 0 if k is None else int(k))

    def backward(self, grads, inputs, outputs):
        (dy,), (_, *k) = grads, inputs
        return self.forward(dy, *k), *(None for _ in k)


@dataclass(frozen=True, kw_only=True, repr=False)
class CenterCropPad(Operator):
    """The middle of x, or x in the middle of zeros, along each of `axes`. ONNX CenterCropPad-18.

    shape: the new sizes, integers, one for each of `axes`; all axes if absent. What is odd is cut
    off, or added, at the end.
    """

    axes: tuple[int, ...] | None = None
    since = 18

    def pads(self, sizes, shape):
        """The zeros before and behind each axis; negative: what is cut off."""
        axes = range(len(sizes)) if self.axes is None else self.axes
        more = [0] * len(sizes)
        for axis, size in zip(axes, shape, strict=True):
            more[axis] = int(size) - sizes[axis]
        begin = [int(n / 2) for n in more]
        return (*begin, *(n - b for n, b in zip(more, begin, strict=True)))

    def forward(self, x, shape):
        return Pad().forward(x, self.pads(x.shape, shape))

    def backward(self, grads, inputs, outputs):
        x, shape = inputs
        return Pad().backward(grads, (x, self.pads(x.shape, shape)), outputs)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReverseSequence(Operator):
    """The first elements of each sequence in reverse, as many as it has. ONNX ReverseSequence-28.

    x: (time, batch, ...), or the other way round, as `batch_axis` and `time_axis` say;
    sequence_lens: (batch,) int64.
    """

    batch_axis: int = 1
    time_axis: int = 0
    since = 28

    def batch(self, *shapes):
        return Batch((self.batch_axis, 0), (self.batch_axis,))

    def forward(self, x, sequence_lens):
        t, lengths = np.arange(x.shape[self.time_axis]), sequence_lens[:, None]
        places = np.where(t < lengths, lengths - 1 - t, t)
        places = places if self.time_axis else places.T
        return np.take_along_axis(
            x, places.reshape(*places.shape, *(1,) * (x.ndim - 2)), self.time_axis
        )

    def backward(self, grads, inputs, outputs):
        (dy,), (_, sequence_lens) = grads, inputs
        return self.forward(dy, sequence_lens), None
