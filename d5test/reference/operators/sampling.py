"""Operators that read between the elements of a tensor: resizing, grids, regions.

A place between elements is a coordinate, a real number that counts elements along an axis. Its
value is a sum of elements around it, its taps, under weights that fall off with the distance.
What reads along one axis after the other is a linear map of each, and `Taps` is that map.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.broadcasting import along_channels, plain
from d5test.reference.operators.reductions import ReduceMax
from d5test.reference.operators.windows import (
    Windows,
    bias_gradient,
    filter_gradient,
    filtered,
    patch_gradient,
)

__all__ = ["AffineGrid", "DeformConv", "GridSample", "MaxRoiPool", "Resize", "RoiAlign"]


@dataclass(frozen=True)
class Taps:
    """The elements at `places` (out, k) along an axis of n, under `weights` (out, k).

    Without weights each output is an element: places are (out,).
    """

    axis: int
    n: int
    places: Any
    weights: Any = None

    def read(self, x):
        """From n elements along the axis to as many as there are outputs."""
        taken = np.take(x, self.places, self.axis)
        if self.weights is None:
            return taken
        behind = (1,) * (x.ndim - 1 - self.axis)
        return (taken * self.weights.reshape(*self.places.shape, *behind)).sum(self.axis + 1)

    def spread(self, dy):
        """The adjoint of `read`."""
        dy = np.moveaxis(dy, self.axis, 0)
        dx = np.zeros_like(dy, shape=(self.n, *dy.shape[1:]))
        if self.weights is not None:
            weights = self.weights.reshape(*self.places.shape, *(1,) * (dy.ndim - 1))
            dy = np.expand_dims(dy, 1) * weights
        np.add.at(dx, self.places, dy)
        return np.moveaxis(dx, 0, self.axis)


def triangle(distance):
    """The weights of linear interpolation."""
    return np.maximum(1 - np.abs(distance), 0.0)


def triangle_slope(distance):
    """Its derivative; where it jumps, the mean of both sides."""
    return -np.sign(distance) * (0.5 + 0.5 * np.sign(1 - np.abs(distance)))


def cubic(distance, a):
    """The weights of cubic convolution. Keys, IEEE Trans. ASSP 29 (1981), equation 4."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, np.zeros_like(far)))


NEAREST: Mapping[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda place: np.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: np.floor(place + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Resize(Operator):
    """x read at evenly spaced places along some axes, and more or fewer of them. ONNX Resize-19.

    x: any shape. roi: (2 k,), starts and ends as parts of the k axes, all if there are no `axes`;
    scales: (k,) float32, or sizes: (k,) integers, of y. Beyond its ends x goes on as its last
    element, or weights there are zero and the others add up to one (`exclude_outside`).
    `coordinate_transformation_mode` "tf_crop_and_resize" alone looks at roi, and writes
    `extrapolation_value` where it reaches beyond x.
    """

    antialias: int = 0
    axes: tuple[int, ...] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"
    since = 19
    arguments = (1, 2)

    def forward(self, x, roi=None, scales=None, sizes=None):
        y = x
        beyond = np.zeros((1,) * x.ndim, bool)
        for axis, *step in self.steps(x.shape, roi, scales, sizes):
            y = self.taps(x, axis, x.shape[axis], *step).read(y)
            beyond = beyond | self.beyond(x, axis, x.shape, *step)
        return np.where(beyond, np.full_like(y, self.extrapolation_value), y)

    def backward(self, grads, inputs, outputs):
        (dx,), (x, *arguments) = grads, inputs
        steps = [*self.steps(x.shape, *arguments)]
        for axis, *step in steps:
            dx = np.where(self.beyond(x, axis, x.shape, *step), np.zeros_like(dx), dx)
        for axis, *step in reversed(steps):
            dx = self.taps(x, axis, x.shape[axis], *step).spread(dx)
        return dx, *(None for _ in arguments)

    def batch(self, *shapes):
        kept = self.axes is not None and 0 not in [axis % len(shapes[0]) for axis in self.axes]
        return Batch((0, *(None for _ in shapes[1:])), (0,)) if kept else None

    def steps(
        self, shape: Sequence[int], roi: Any = None, scales: Any = None, sizes: Any = None
    ) -> Iterator[Any]:
        """Of each axis that changes: the axis, its new size, the scale, and the part that is read.

        The scale is that of the formula, which need not be the quotient of both sizes.
        """
        axes = [axis % len(shape) for axis in self.axes or range(len(shape))]
        old = [shape[axis] for axis in axes]
        if scales is not None and scales.size:
            scale = numbers(scales)
            new = [math.floor(n * s) for n, s in zip(old, scale, strict=True)]
        else:
            new = numbers(sizes)
            scale = [m / n for m, n in zip(new, old, strict=True)]
            if self.keep_aspect_ratio_policy != "stretch":
                common = (min if self.keep_aspect_ratio_policy == "not_larger" else max)(scale)
                new = [math.floor(n * common + 0.5) for n in old]
                scale = [common] * len(axes)
        cropped = self.coordinate_transformation_mode == "tf_crop_and_resize"
        part = numbers(roi) if cropped else [0.0] * len(axes) + [1.0] * len(axes)
        parts = zip(part[: len(axes)], part[len(axes) :], strict=True)
        for axis, n, m, s, (start, end) in zip(axes, old, new, scale, parts, strict=True):
            if (n, s, start, end) != (m, 1, 0, 1):
                yield axis, m, s, start, end

    def places(self, like: Any, n: int, m: int, scale: Any, start: float, end: float) -> Any:
        """The coordinate (m,) of each output along an axis of n, in the arithmetic of `like`."""
        i = np.zeros_like(like, shape=(m,))
        i[...] = np.arange(m)
        scale = scale * np.ones_like(like, shape=())  # the quotient of two sizes is rounded
        width = n * scale
        match self.coordinate_transformation_mode:
            case "asymmetric":
                return i / scale
            case "align_corners":
                return i * ((n - 1) / (width - 1) if width != 1 else 0.0)
            case "tf_crop_and_resize" if m > 1:
                return start * (n - 1) + i * ((end - start) * (n - 1) / (width - 1))
            case "tf_crop_and_resize":
                return i + 0.5 * (start + end) * (n - 1)
            case "pytorch_half_pixel" if m == 1:
                return i
            case "half_pixel_symmetric":
                return n / 2 * (1 - m / width) + ((i + 0.5) / scale - 0.5)
        return (i + 0.5) / scale - 0.5

    def beyond(self, like, axis, shape, *step):
        """Which outputs along the axis lie beyond x, as they broadcast to y."""
        if self.coordinate_transformation_mode != "tf_crop_and_resize":
            return np.zeros((1,) * len(shape), bool)
        place, n = self.places(like, shape[axis], *step), shape[axis]
        return ((place < 0) | (place > n - 1)).reshape(-1, *(1,) * (len(shape) - 1 - axis))

    def taps(self, like, axis, n, m, scale, start, end):
        """What is read along the axis. No more than coordinates and weights carry errors."""
        step = n, m, scale, start, end
        place = self.places(np.zeros(()), *step)
        if self.mode == "nearest":
            index = NEAREST[self.nearest_mode](place).astype(int)
            return Taps(axis, n, np.clip(index, 0, n - 1))
        narrowed = min(scale, 1.0) if self.antialias else 1.0
        reach = math.ceil((1 if self.mode == "linear" else 2) / narrowed)
        # one more than lies within reach: a coordinate that is off by little may reach it
        index = np.floor(place).astype(int)[:, None] + np.arange(-reach, reach + 2)
        distance = np.abs(np.expand_dims(self.places(like, *step), 1) - index) * narrowed
        weights = (
            triangle(distance) if self.mode == "linear" else cubic(distance, self.cubic_coeff_a)
        )
        if self.exclude_outside:
            weights = np.where((index >= 0) & (index < n), weights, np.zeros_like(weights))
        if self.exclude_outside or self.antialias:
            total = weights.sum(1, keepdims=True)
            weights = weights / np.where(total == 0, np.ones_like(total), total)
        return Taps(axis, n, np.clip(index, 0, n - 1), weights)


def numbers(argument):
    """The plain numbers of an argument, by which nothing is differentiated: sizes, scales."""
    return plain(argument).tolist()


@dataclass(frozen=True, kw_only=True, repr=False)
class GridSample(Operator):
    """x read at the places that a grid names. ONNX GridSample-22; Jaderberg et al. 2015.

    x: (n, c, *size), r sides; grid: (n, *out, r), coordinates along these sides, the last one
    first, of which -1 and 1 are the ends: the middles of the first and last element
    (`align_corners`), or their outer borders; y: (n, c, *out). Beyond x there are zeros, its
    outermost elements ("border"), or itself ("reflection" at the ends).
    """

    align_corners: int = 0
    mode: str = "linear"
    padding_mode: str = "zeros"
    since = 22
    arguments = (1,)

    def forward(self, x, grid):
        return gathered(x, *self.taps(x, grid))

    def backward(self, grads, inputs, outputs):
        (dy,), (x, grid) = grads, inputs
        return scattered(dy, x.shape, *self.taps(x, grid)), None

    def batch(self, *shapes):
        return Batch((0, 0), (0,))

    def taps(self, x, grid):
        """As `meshed`."""
        sides = x.shape[2:]
        rank = len(sides)
        return meshed([self.along(grid[..., rank - 1 - i], n) for i, n in enumerate(sides)])

    def along(self, g, n):
        """The elements around each place along a side of n, and their weights: (..., k)."""
        low, high = (0.0, n - 1.0) if self.align_corners else (-0.5, n - 0.5)
        place = (g + 1) * 0.5 * (n - 1) if self.align_corners else ((g + 1) * n - 1) * 0.5
        if self.padding_mode == "reflection":
            place = reflected(place, low, high)
        elif self.padding_mode == "border":
            place = np.where((place < low) | (place > high), np.clip(place, 0, n - 1), place)
        reach = 2 if self.mode == "cubic" else 1
        index = np.floor(plain(place)).astype(int)[..., None] + np.arange(-reach, reach + 2)
        place = np.expand_dims(place, -1)
        if self.mode == "nearest":
            weights = np.where(np.rint(place) == index, np.ones_like(place), np.zeros_like(place))
        else:
            distance = np.abs(place - index)
            weights = triangle(distance) if self.mode == "linear" else cubic(distance, -0.75)
        if self.padding_mode == "zeros":
            inside = (index >= 0) & (index < n)
            weights = np.where(inside, weights, np.zeros_like(weights))
        elif self.padding_mode == "reflection":
            index = reflected(index, low, high).astype(int)
        return np.clip(index, 0, n - 1), weights


def meshed(along):
    """Where elements are read around places (n, *out), of which `along` has for each side the
    indices around, and their weights: (n, *out, k).

    Returned are indices of x and its sides, which broadcast to (n, *out, *taps), and for each side
    weights (n, *out, ..., k, 1).
    """
    rank, out = len(along), along[0][0].shape[:-1]
    places = [np.arange(out[0]).reshape(-1, *(1,) * (len(out) - 1 + rank))]
    weights = []
    for i, (index, weight) in enumerate(along):
        around = (*(1,) * i, index.shape[-1], *(1,) * (rank - 1 - i))
        places.append(index.reshape(*out, *around))
        weights.append(weight.reshape(*out, *around[: i + 1], 1))
    return tuple(places), weights


def gathered(x, places, weights):
    """x (n, c, *size), read as `meshed` says: (n, c, *out)."""
    y = np.moveaxis(x, 1, -1)[places]  # (n, *out, *taps, c)
    for w in weights[::-1]:
        y = (y * w).sum(-2)
    return np.moveaxis(y, -1, 1)


def scattered(dy, shape, places, weights):
    """The adjoint of `gathered`, of x of this shape."""
    terms = np.moveaxis(dy, 1, -1)
    for w in weights:
        terms = np.expand_dims(terms, -2) * w
    dx = np.zeros_like(dy, shape=(shape[0], *shape[2:], shape[1]))
    np.add.at(dx, places, terms)
    return np.moveaxis(dx, -1, 1)


def reflected(place, low, high):
    """Places as they lie after turning back at `low` and `high`, as often as they meet them."""
    width = high - low
    if not width:
        return 0 * place
    turns = np.floor((plain(place) - low) / width)
    beyond = place - (low + turns * width)
    return np.where(turns % 2 == 0, low + beyond, high - beyond)


@dataclass(frozen=True, kw_only=True, repr=False)
class AffineGrid(Operator):
    """Where an affine map moves the places of an image: a grid of GridSample. ONNX AffineGrid-20.

    theta: (n, r, r + 1), the last column a shift; size: (n, c, *size), r sides of 2 or more;
    y: (n, *size, r), of the place with coordinates from -1 to 1, the last side's first. These are
    the middles of the first and last element (`align_corners`), or their outer borders.
    """

    align_corners: int = 0
    since = 20

    def forward(self, theta, size):
        n, _, *sides = map(int, size)
        if theta.shape != (n, len(sides), len(sides) + 1):
            raise ValueError(f"theta {theta.shape} is no map of {n} images of {len(sides)} sides")
        places = self.places(theta, sides)
        return (places @ np.swapaxes(theta, 1, 2)).reshape(n, *sides, -1)

    def backward(self, grads, inputs, outputs):
        (dy,), (theta, size) = grads, inputs
        n, _, *sides = map(int, size)
        moved = dy.reshape(n, -1, len(sides))
        return np.swapaxes(moved, 1, 2) @ self.places(theta, sides), None

    def places(self, like, sides):
        """Each place (prod(size), r + 1), and a 1, in the arithmetic of `like`."""
        places = np.ones_like(like, shape=(*sides, len(sides) + 1))
        for axis, n in enumerate(sides):
            i = np.zeros_like(like, shape=(n, *(1,) * (len(sides) - 1 - axis)))
            i[...] = np.arange(n).reshape(i.shape)
            place = 2 * i / (n - 1) - 1 if self.align_corners else (2 * i + 1) / n - 1
            places[..., len(sides) - 1 - axis] = place
        return places.reshape(-1, len(sides) + 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class RoiAlign(Operator):
    """Bins of regions of images, each from points evenly spaced in it. ONNX RoiAlign-22.

    x: (n, c, h, w); rois: (m, 4), x1, y1, x2, y2 of each region; batch_indices: (m,), its image;
    y: (m, c, output_height, output_width). Along each side a bin has `sampling_ratio` points, or
    if that is zero as many as elements, rounded up. Its value is the mean of x there, or the
    largest of the products of elements and weights, as ONNX's node cases have it; what it is where
    there are no points, ONNX does not say. There is nothing further than an element before x, or
    than half of one behind it.
    """

    coordinate_transformation_mode: str = "half_pixel"
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    since = 22
    arguments = (1,)

    def forward(self, x, rois, batch_indices):
        y, pixels = self.empty(x, batch_indices), np.moveaxis(x, 1, -1)
        for i, places, weights, points in self.regions(x, rois, batch_indices):
            terms = pixels[places] * weights
            y[i] = terms.max(2) if self.mode == "max" else terms.sum(2) / math.prod(points)
        return np.moveaxis(y, -1, 1)

    def empty(self, x, batch_indices):
        """The bins of regions without points, (m, bins, bins, c)."""
        shape = len(batch_indices), self.output_height, self.output_width, x.shape[1]
        return np.full_like(np.zeros_like(x, shape=shape), np.nan)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *regions) = grads, inputs
        dy, pixels = (np.moveaxis(a, 1, -1) for a in (dy, x))
        dx = np.zeros_like(dy, shape=pixels.shape)
        for i, places, weights, points in self.regions(x, *regions):
            shares = np.expand_dims(dy[i], 2)
            if self.mode == "max":
                terms = pixels[places] * weights
                first = np.argmax(terms, axis=2, keepdims=True)
                chosen = np.zeros_like(terms)
                np.put_along_axis(chosen, first, shares, 2)
                np.add.at(dx, places, chosen * weights)
            else:
                np.add.at(dx, places, shares / math.prod(points) * weights)
        return np.moveaxis(dx, -1, 1), None, None

    def batch(self, *shapes):
        return Batch((None, 0, 0), (0,))

    def regions(self, x, rois, batch_indices):
        """Of each region that has points: its number, the indices of the elements around them,
        (bins, bins, taps) in all, their weights (bins, bins, taps, 1), and how many points a bin
        has, down and across."""
        for i, image in enumerate(batch_indices):
            rows, heights = self.taps(rois[i, 1::2], x.shape[2], self.output_height)
            columns, widths = self.taps(rois[i, ::2], x.shape[3], self.output_width)
            points = rows.shape[1] // 2, columns.shape[1] // 2
            if 0 not in points:
                weights = heights[:, None, :, None] * widths[:, None]
                shape = (len(rows), len(columns), 4 * math.prod(points))
                places = [
                    np.broadcast_to(k, weights.shape).reshape(shape)
                    for k in (rows[:, None, :, None], columns[:, None])
                ]
                yield i, (int(image), *places), weights.reshape(*shape, 1), points

    def points(self, ends: Any, bins: int) -> Any:
        """The coordinates (bins, k) of the points along a side of a region."""
        half = self.coordinate_transformation_mode == "half_pixel"
        start, end = (ends[i] * self.spatial_scale - (0.5 if half else 0.0) for i in (0, 1))
        width = (end - start if half else np.maximum(end - start, 1.0)) / bins
        k = self.sampling_ratio or max(0, math.ceil(plain(width)))
        return start + (np.arange(bins)[:, None] + (np.arange(k) + 0.5) / max(k, 1)) * width

    def taps(self, ends, n, bins):
        """The elements around the points along a side of n, and their weights: (bins, 2 k)."""
        point = np.expand_dims(self.points(ends, bins), -1)
        place = np.clip(point, 0, n - 1)
        index = np.floor(plain(place)).astype(int) + np.arange(2)
        weights = triangle(place - index)
        weights = np.where((point < -1) | (point > n), np.zeros_like(weights), weights)
        return np.minimum(index, n - 1).reshape(bins, -1), weights.reshape(bins, -1)


@dataclass(frozen=True, kw_only=True, repr=False)
class MaxRoiPool(Operator):
    """The largest element of each bin of regions of images, zero of an empty one.
    ONNX MaxRoiPool-22; Girshick 2015, as Caffe's ROIPooling.

    x: (n, c, h, w); rois: (m, 5), the image and x1, y1, x2, y2 of each region, which are rounded,
    and whose last element is part of it; y: (m, c, *pooled_shape). Bins share elements where the
    sides of a region are no multiples of theirs.
    """

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0
    since = 22
    arguments = (1,)

    def forward(self, x, rois):
        y = np.zeros_like(x, shape=(len(rois), x.shape[1], *self.pooled_shape))
        for place, elements in self.bins(x.shape, rois):
            y[place] = x[elements].max((1, 2))
        return y

    def backward(self, grads, inputs, outputs):
        (dy,), (x, rois) = grads, inputs
        dx = np.zeros_like(dy, shape=x.shape)
        for place, elements in self.bins(x.shape, rois):
            share = dy[place].reshape(-1, 1, 1)
            dx[elements] += ReduceMax().gradient(share, x[elements], None, (1, 2))
        return dx, None

    def batch(self, *shapes):
        return Batch((None, 0), (0,))

    def bins(self, shape, rois):
        """Of each bin that is not empty the indices of its channels in y, and of its elements."""
        for i, (image, *ends) in enumerate(plain(rois).tolist()):
            x1, y1, x2, y2 = (math.floor(end * self.spatial_scale + 0.5) for end in ends)
            sides = zip((y1, x1), (y2, x2), shape[2:], self.pooled_shape, strict=True)
            rows, columns = (parts(*side) for side in sides)
            for j, k in itertools.product(range(len(rows)), range(len(columns))):
                if rows[j].start < rows[j].stop and columns[k].start < columns[k].stop:
                    yield (i, slice(None), j, k), (int(image), slice(None), rows[j], columns[k])


def parts(first, last, n, bins):
    """Where each bin of a region lies along a side of n."""
    width = max(last - first + 1, 1)
    ends = ((k * width // bins, -(-(k + 1) * width // bins)) for k in range(bins))
    return [slice(*(min(max(first + end, 0), n) for end in both)) for both in ends]


@dataclass(frozen=True, kw_only=True, repr=False)
class DeformConv(Operator):
    """A convolution whose every tap is moved by an offset of its own. ONNX DeformConv-22;
    Dai et al. 2017; with a mask, Zhu et al. 2019.

    x: (n, c, *size), r sides, zeros beyond; w: (m, c / group, *kernel); b: (m,);
    offset: (n, offset_group prod(kernel) r, *out), in elements along each side;
    mask: (n, offset_group prod(kernel), *out), which multiplies what is read; y: (n, m, *out).
    """

    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    offset_group: int = 1
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    since = 22
    auto_pad = "NOTSET"

    def forward(self, x, w, offset, b=None, mask=None):
        read = gathered(self.grouped(x), *meshed(self.taps(x, w, offset, triangle)))
        y = filtered(self.patches(read, mask, x, w), w, self.group)
        return y if b is None else y + along_channels(b, y.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, w, offset, *_) = grads, inputs
        b, mask = (*inputs[3:], None, None)[:2]
        pixels, rank = self.grouped(x), w.ndim - 2
        places, weights = meshed(self.taps(x, w, offset, triangle))
        _, slopes = meshed(self.taps(x, w, offset, triangle_slope))
        read = gathered(pixels, places, weights)
        dw = filter_gradient(self.patches(read, mask, x, w), dy, w, self.group)
        dread = patch_gradient(dy, w, self.group)
        dread = np.moveaxis(dread, range(-rank, 0), range(2, 2 + rank)).reshape(read.shape)
        dmask = None if mask is None else (dread * read).sum(1).reshape(mask.shape)
        if mask is not None:
            dread = dread * mask.reshape(len(read), 1, *read.shape[2:])
        moved = (
            gathered(pixels, places, [*weights[:i], slopes[i], *weights[i + 1 :]])
            for i in range(rank)
        )
        doffset = np.stack([(dread * dplace).sum(1) for dplace in moved], 1 + rank)
        dx = scattered(dread, pixels.shape, places, weights).reshape(x.shape)
        (db,) = bias_gradient(dy, (b,))
        return (dx, dw, doffset.reshape(offset.shape), db, dmask)[: len(inputs)]

    def batch(self, *shapes):
        given = zip((0, None, 0, None, 0), shapes, strict=False)
        return Batch(tuple(None if shape is None else axis for axis, shape in given), (0,))

    def grouped(self, x):
        """(n, c, *size) to (n offset_group, c / offset_group, *size)."""
        n, c, *size = x.shape
        return x.reshape(n * self.offset_group, c // self.offset_group, *size)

    def patches(self, read, mask, x, w):
        """(n offset_group, c / offset_group, *kernel, *out) to (n, c, *out, *kernel)."""
        if mask is not None:
            read = read * mask.reshape(len(read), 1, *read.shape[2:])
        rank = w.ndim - 2
        patches = read.reshape(*x.shape[:2], *read.shape[2:])
        return np.moveaxis(patches, range(2, 2 + rank), range(-rank, 0))

    def taps(self, x, w, offset, weigh):
        """Along each side the elements around each place, and what `weigh` makes of how far it
        lies behind them: (n offset_group, *kernel, *out, k)."""
        kernel, rank = w.shape[2:], w.ndim - 2
        at = Windows.on_input(self, x.shape[2:], kernel)
        offset = offset.reshape(len(x) * self.offset_group, *kernel, rank, *at.out)
        taps = []
        for i, n in enumerate(x.shape[2:]):
            first = np.arange(at.out[i]) * at.strides[i] - at.begin[i]
            tap = np.arange(kernel[i]) * at.dilations[i]
            sides = [1] * 2 * rank
            sides[i], sides[rank + i] = kernel[i], at.out[i]
            place = np.take(offset, i, 1 + rank) + (tap[:, None] + first).reshape(sides)
            index = np.floor(plain(place)).astype(int)[..., None] + np.arange(-1, 3)
            # from the next element, as some compute it: its place has a rounding error of its own
            weights = weigh((np.expand_dims(place, -1) + 1) - (index + 1))
            inside = (index >= 0) & (index < n)
            weights = np.where(inside, weights, np.zeros_like(weights))
            taps.append((np.clip(index, 0, n - 1), weights))
        return taps
