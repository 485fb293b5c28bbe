"""Cases of what reads at places: by every kind of coordinate, in images and regions."""

from functools import partial
from math import prod
from typing import Any

import numpy as np

from d5test.reference.operators import sampling
from d5test.reference.operators.windows import MaxPool, Windows
from d5test.strategies.draw import Draw, Regime
from d5test.strategies.registry import Inputs, attributes, choices, inputs
from d5test.strategies.windows import REGIMES, alike, along, most, rank_of, spatial

SCALES = (2.0, 0.5, 1.5, 0.75, 1.25, 3.0, 0.625)
"""Numbers of few bits, which no lower precision changes: with them the output's size would."""
FAR, FEW = 5.0, 8
"""How much a side is enlarged at most, and up to which length: it costs the reference memory."""
COORDINATES = (
    "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
    "tf_crop_and_resize",
)  # fmt: skip
CROPPED = COORDINATES[-1]
FRACTIONAL = COORDINATES[:2] + COORDINATES[3:5]
"""Those of which ONNX says what comes of a length that is not whole."""
USUAL: tuple[dict[str, Any], ...] = (
    {"mode": "linear"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
    {"mode": "linear", "antialias": 1, "exclude_outside": 1},
    {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1},
)
"""What frameworks offer."""
WRITTEN = 2**18
"""Elements of a result at most, where one scale enlarges all sides."""
CLEAR = 1e-3
"""So far from a jump a coordinate lies that is computed in float32."""


POLICIES = ("stretch", "not_larger", "not_smaller")
OFFSETS: tuple[Regime, ...] = (("uniform", -1.5, 1.5), "normal", ("uniform", -4, 4), "ties")
GRIDS: tuple[Regime, ...] = (
    ("uniform", -1.25, 1.25), ("uniform", -3, 3), ("uniform", -6, 6), "ties",
)  # fmt: skip
"""Also so far outside that a reflection turns back more than once."""
ENDS = (0.0, 1.0)
PARTS = ((0.125, 0.75), (0.25, 1.25), (-0.25, 0.5), ENDS, (0.75, 0.25))
"""Starts and ends of what is read: inside, beyond either end, all, backwards."""


@attributes(sampling.Resize)
def resize_attributes(d: Draw) -> sampling.Resize:
    """What frameworks offer in half of the draws; else everything together."""
    axes = d.choose(((2, 3), None, (2,), (-1, -2), (2, 3, 4), (1, 3)))
    if d.flag():
        return sampling.Resize(**d.choose(USUAL), axes=axes)
    mode, coordinate = d.choose(("linear", "nearest", "cubic")), d.choose(COORDINATES)
    rounding = tuple(sampling.NEAREST)[: 4 if coordinate in FRACTIONAL else 2]
    return sampling.Resize(
        antialias=d.choose((0, 0, 1)) if mode != "nearest" else 0,
        axes=axes,
        coordinate_transformation_mode=coordinate,
        cubic_coeff_a=d.choose((-0.75, -0.5)) if mode == "cubic" else -0.75,
        exclude_outside=d.choose((0, 1)) if mode == "cubic" else 0,
        extrapolation_value=d.choose((0.0, 10.0)) if coordinate == CROPPED else 0.0,
        keep_aspect_ratio_policy=d.choose(POLICIES) if coordinate in FRACTIONAL else POLICIES[0],
        mode=mode,
        nearest_mode=d.choose(rounding) if mode == "nearest" else rounding[0],
    )


@inputs(sampling.Resize)
def resize_inputs(d: Draw, op: sampling.Resize) -> Inputs:
    """Signals, images, volumes, by sizes or by scales.

    Elements are chosen where float32 leaves no doubt which; else it is twice as many of them.
    """
    least = max((axis + 1 if axis >= 0 else -axis for axis in op.axes or ()), default=0)
    rank = max(4, least) if op.axes else d.integer(3, 5)
    shape = (d.samples(most=3), *d.channels(1, most=4), *d.sides(rank - 2, most=6))
    sides = [shape[axis] for axis in op.axes or range(rank)]
    kept = 0 if op.axes else 2
    x, floats = d.tensor(shape), partial(d.literal, dtype="float32")
    by_scale = op.coordinate_transformation_mode in FRACTIONAL
    if by_scale and op.keep_aspect_ratio_policy == "stretch" and d.flag():
        scales = [
            d.choose([s for s in (*SCALES, FAR if n <= FEW else 2.0) if n * s >= min(n, 2)])
            for n in sides[kept:]
        ]
        drawn: Inputs = x, None, floats([1.0] * kept + scales)
        return drawn if clear(op, drawn) else (x, None, floats([2.0] * len(sides)))
    sizes = sides[:kept] + [resized(d, n) for n in sides[kept:]]
    parts = [ENDS] * kept + [d.choose(PARTS) for _ in sides[kept:]]
    if op.keep_aspect_ratio_policy != "stretch":
        written = list(shape)
        for axis, size, *_ in op.steps(shape, sizes=np.array(sizes)):
            written[axis] = size
        if prod(written) > WRITTEN:
            sizes = [n + 1 for n in sides]
    cropped = op.coordinate_transformation_mode == CROPPED
    roi, whole = (
        floats([p[i] for i in (0, 1) for p in ends]) for ends in (parts, [ENDS] * len(parts))
    )
    drawn = x, roi if cropped else None, None, d.literal(sizes)
    twice = x, whole if cropped else None, None, d.literal([2 * n for n in sides])
    return drawn if clear(op, drawn) else twice


def resized(d: Draw, n: int) -> int:
    """Another size: twice or five times as large, or a little larger or smaller; 1 only for 1."""
    usual = 2 * n, n + d.integer(1, 3), max(min(n, 2), n - d.integer(1, 3))
    return d.choose((*usual, *usual, int(FAR) * n if n <= FEW else 2 * n))


def clear(op: sampling.Resize, inputs: Inputs) -> bool:
    """Whether it is beyond doubt what is read.

    No coordinate is nearly one at which another element is the nearest, unless coordinates are a
    power of two apart: then nothing is rounded. And of each axis the size changes, or nothing:
    else torch and ONNX Runtime copy what ONNX reads between elements.
    """
    x, *arguments = (None if t is None else t.array(0, 0) for t in inputs)
    assert x is not None
    for axis, *step in op.steps(x.shape, *arguments):
        if step[0] == x.shape[axis]:
            return False
        place = op.places(np.zeros(()), x.shape[axis], *step)
        exact = place.size > 1 and np.frexp(place[1] - place[0])[0] == 0.5
        ends = (sampling.NEAREST[op.nearest_mode](place + sign * CLEAR) for sign in (-1, 1))
        if op.mode == "nearest" and not exact and np.any(np.not_equal(*ends)):
            return False
    return True


choices(
    sampling.GridSample,
    align_corners=(0, 1),
    mode=("linear", "nearest", "cubic"),
    padding_mode=("zeros", "border", "reflection"),
)


@inputs(sampling.GridSample)
def grid_inputs(d: Draw, op: sampling.GridSample) -> Inputs:
    """Images and volumes; places inside, at the corners, and beyond, but there no cubic ones:
    torch and ONNX go on with other weights. In 16 bits a coordinate has no more than these: beyond
    a hundred elements it is off by a whole one where each step is stored."""
    rank = 2 if op.mode == "cubic" else d.choose((2, 2, 3))
    n, c = d.samples(most=3), d.channels(1, most=4)
    size = d.sides(rank, least=2, most=6, few=d.dtype in ("float16", "bfloat16"))
    out = d.sides(rank, most=5)
    inside = op.mode == "cubic" and op.padding_mode != "zeros"
    grid = d.tensor((n, *out, rank), *([("uniform", -1, 1)] if inside else GRIDS))
    return d.tensor((n, *c, *size)), grid


choices(sampling.AffineGrid, align_corners=(0, 1))


@inputs(sampling.AffineGrid)
def affine_inputs(d: Draw, op: sampling.AffineGrid) -> Inputs:
    """Of images and volumes. A side has two places at least: of the middle of one ONNX does not
    say whether it is the first or the last."""
    rank = d.choose((2, 2, 3))
    n, sides = d.samples(most=3), d.sides(rank, least=2)
    return d.tensor((n, rank, rank + 1)), d.literal((n, d.integer(1, 3), *sides))


choices(
    sampling.RoiAlign,
    coordinate_transformation_mode=("half_pixel", "output_half_pixel"),
    mode=("avg", "max"),
    output_height=(1, 2, 3, 5),
    output_width=(2, 1, 3, 4),
    sampling_ratio=(0, 2, 1, 3),
    spatial_scale=(1.0, 0.5, 0.25),
)


@inputs(sampling.RoiAlign)
def roi_inputs(d: Draw, op: sampling.RoiAlign) -> Inputs:
    """Regions inside an image and beyond it, in steps of 1/8, which no dtype rounds; empty ones
    where it is degenerate. Of one that is not clear there are points a unit apart instead.
    """
    n, c = d.samples(most=3), d.channels(1, most=4)
    size = d.sides(2, most=8)
    m = d.side(most=4, empty=True, few=True)
    shift = 0.5 if op.coordinate_transformation_mode == "half_pixel" else 0.0
    rois = []
    for _ in range(m):
        ends = [clear_ends(d, op, axis, size[axis], shift) for axis in (1, 0)]
        rois += [end[i] / op.spatial_scale for i in (0, 1) for end in ends]
    images = d.index((m,), n)
    return d.tensor((n, *c, *size)), d.literal(rois, d.dtype, (m, 4)), images


def clear_ends(
    d: Draw, op: sampling.RoiAlign, axis: int, n: int, shift: float
) -> tuple[float, float]:
    """Ends of a region along a side of n, whose points lie clear of those at which a value jumps:
    where x ends, and of the largest product where other elements are around.
    """
    bins = (op.output_height, op.output_width)[axis]
    start = d.integer(-10, 8 * min(n, 8)) / 8
    ends = start, start + d.integer(0 if d.degenerate else 1, 64) / 8
    exact = op.with_(spatial_scale=1.0)
    points = exact.points(np.array(ends), bins)
    jumps = np.rint(points) if op.mode == "max" else np.clip(np.rint(points), -1, n)
    near = np.abs(points - jumps) < (1 / 16 if d.dtype in ("float16", "bfloat16") else CLEAR)
    if np.any(near & ((op.mode == "max") | (jumps == -1) | (jumps == n))):
        ends = shift - 0.25, shift - 0.25 + bins * max(op.sampling_ratio, 1)
    return ends


choices(
    sampling.MaxRoiPool,
    pooled_shape=((2, 1), (1, 1), (3, 2), (2, 4), (5, 3)),
    spatial_scale=(1.0, 0.5, 0.25),
)


@inputs(sampling.MaxRoiPool)
def max_roi_inputs(d: Draw, op: sampling.MaxRoiPool) -> Inputs:
    """Regions inside an image and beyond it, whose ends are no halves; turned round where it is
    degenerate.
    """
    n, c = d.samples(most=3), d.channels(1, most=4)
    size = d.sides(2, most=8)
    m = d.side(most=4, empty=True, few=True)
    rois: list[float] = []
    for _ in range(m):
        starts = [d.integer(-2, min(side, 8)) for side in size[::-1]]
        ends = [start + d.integer(-2 if d.degenerate else 0, 9) for start in starts]
        shift = d.choose((0, 0.25, -0.25))
        rois += [d.integer(0, min(n, 9) - 1)] + [
            (end + shift) / op.spatial_scale for end in starts + ends
        ]
    return d.tensor((n, *c, *size), *REGIMES[MaxPool]), d.literal(rois, d.dtype, (m, 5))


@attributes(sampling.DeformConv)
def deform_attributes(d: Draw) -> sampling.DeformConv:
    """Images and volumes; groups of channels that are filtered or that move together."""
    rank = d.choose((2, 2, 2, 3))
    return sampling.DeformConv(
        dilations=d.maybe(along(d, rank, 2)),
        group=d.groups(2),
        kernel_shape=d.vector(rank, 1, most(rank)),
        offset_group=d.integer(1, 2),
        pads=d.maybe(alike(d.vector(2 * rank, 0, 2))),
        strides=d.maybe(along(d, rank, most(rank))),
    )


@inputs(sampling.DeformConv)
def deform_inputs(d: Draw, op: sampling.DeformConv) -> Inputs:
    """Taps that move a little or beyond the image, also by whole elements; with a bias, a mask,
    both, and neither.
    """
    rank = rank_of(d, op.pads, op.kernel_shape, op.strides, op.dilations)
    kernel = op.kernel_shape or d.vector(rank, 1, most(rank))
    n, (c, m) = d.samples(most=3), d.channels(2, most=2)
    size = spatial(d, kernel, op.dilations, op.pads, "NOTSET")
    x = (n, op.group * op.offset_group * c, *size)
    w = (op.group * m, op.offset_group * c, *kernel)
    out = Windows.on_input(op, size, kernel).out
    groups = op.offset_group * prod(kernel)
    offset = d.tensor((n, groups * rank, *out), *OFFSETS)
    bias = d.maybe(d.addend((op.group * m,)))
    mask = d.maybe(d.tensor((n, groups, *out)))
    given = *d.factors(x, w), offset, bias, mask
    return given if mask is not None else given[: 4 if bias is not None else 3]
