"""Cases of the operators that move values: indices from either end, steps back, parts that are
empty, borders of every mode."""

import math
from itertools import permutations
from operator import methodcaller

from d5test.case import Tensor
from d5test.reference.operators import movement
from d5test.strategies.draw import Draw, Shape
from d5test.strategies.registry import attributes, choices, inputs
from d5test.strategies.sizes import WIDE

PERIOD = 60
"""After so many sequences their lengths begin again."""
FAR = (2**31 - 1, 2**63 - 1)
"""Ends that mean: to the last element."""


choices(movement.Reshape, allowzero=(0, 1))  # zeros that copy a size, and zeros that mean zero
choices(movement.Concat, movement.Gather, axis=methodcaller("any_axis", 4))
choices(movement.Pad, mode=("constant", "reflect", "edge", "wrap"))
choices(movement.Flatten, axis=(1, 0, 2, 3, -1, -2))  # from either end; also one behind the last


@inputs(movement.Reshape)
def reshape_inputs(d: Draw, op: movement.Reshape) -> tuple[Tensor, Tensor]:
    """Sizes exchanged, merged, flattened; one of them copied by 0, one left to -1."""
    x = d.shape(1, 4)
    merged = (math.prod(x[:2]), *x[2:])
    target = list(d.choose((x[::-1], merged, (*x, 1), (1, *x), (math.prod(x),))))
    if 0 in x and not op.allowzero:
        target = list(x)
    elif 0 not in x:
        copied = [i for i, n in enumerate(target[: len(x)]) if x[i] == n]
        if copied and not op.allowzero and d.flag():
            target[d.choose(copied)] = 0
        if d.flag():
            target[d.choose([i for i, n in enumerate(target) if n] or [0])] = -1
    return d.tensor(x), d.literal(target)


@attributes(movement.Transpose)
def transpose_attributes(d: Draw) -> movement.Transpose:
    """Every order of up to six axes."""
    return movement.Transpose(perm=d.maybe(d.choose(permutations(range(d.integer(1, 6))))))


@inputs(movement.Transpose)
def transpose_inputs(d: Draw, op: movement.Transpose) -> tuple[Tensor]:
    """As many axes as there are in the order."""
    rank = d.rank(0, 4) if op.perm is None else len(op.perm)
    return (d.tensor(d.sides(rank, empty=True)),)


@inputs(movement.Concat)
def concat_inputs(d: Draw, op: movement.Concat) -> tuple[Tensor, ...]:
    """One to three tensors or many, of different sizes along the axis; one of them twice."""
    shape = list(d.sides(d.rank_with(op.axis)))
    drawn = []
    for _ in range(d.choose((1, 2, 3, 9))):
        shape[op.axis] = d.side(most=4, empty=True)
        drawn.append(d.tensor(tuple(shape)))
    return (*drawn, d.again(drawn[0], 0)) if d.flag() else tuple(drawn)


@attributes(movement.Split)
def split_attributes(d: Draw) -> movement.Split:
    """Parts by number, or by sizes, which are an input."""
    return movement.Split(axis=d.any_axis(4), num_outputs=d.maybe(d.integer(1, 3)))


@inputs(movement.Split)
def split_inputs(d: Draw, op: movement.Split) -> tuple[Tensor, ...]:
    """The last part is smaller, perhaps, where their number is given; else one may be empty."""
    shape = list(d.sides(d.rank_with(op.axis), empty=True))
    if op.num_outputs is not None:
        size = d.integer(1, 3)
        shape[op.axis] = size * op.num_outputs - d.integer(0, size - 1)
        return (d.tensor(tuple(shape)),)
    sizes = [d.side(most=3, empty=True) for _ in range(d.integer(1, 3))]
    if len(sizes) > 1 and d.choose((False, False, True)):
        sizes[d.integer(0, len(sizes) - 1)] = 0
    shape[op.axis] = sum(sizes)
    return d.tensor(tuple(shape)), d.literal(sizes)


@inputs(movement.Slice)
def slice_inputs(d: Draw, op: movement.Slice) -> tuple[Tensor | None, ...]:
    """Some of the axes, each from either end, forward and back."""
    shape = d.shape(1, 3, empty=False)
    rank = len(shape)
    axes = d.choose([order for n in range(1, rank + 1) for order in permutations(range(rank), n)])
    starts, ends, steps = zip(*(slice_along(d, shape[axis]) for axis in axes), strict=True)
    named: Tensor | None = d.literal([axis - rank * d.flag() for axis in axes])
    if axes == tuple(range(len(axes))):
        named = d.maybe(named)
    drawn = d.tensor(shape), d.literal(starts), d.literal(ends), named, d.literal(steps)
    if set(steps) != {1} or d.flag():
        return drawn
    return drawn[:4] if named is not None else drawn[:3]


def slice_along(d: Draw, n: int) -> tuple[int, int, int]:
    """Start, end and step along an axis of n; empty only in a degenerate draw. What lies beyond
    an end of the axis means that end.
    """
    low = d.integer(0, n - 1)
    high = d.integer(low if d.degenerate else low + 1, n)
    step = d.choose((1, 2, -1, 3, -2))
    if step > 0:
        start, end = low, d.choose((high, *FAR)) if high == n else high
    else:
        start, end = high - 1, d.choose((-n - 1, *(-far for far in FAR))) if low == 0 else low - 1
    if 0 < start < n and d.flag():
        start -= n
    elif start == 0 and step > 0 and d.flag():
        start = -n - 2
    return start, end, step


@inputs(movement.Gather)
def gather_inputs(d: Draw, op: movement.Gather) -> tuple[Tensor, Tensor]:
    """Indices of up to two axes, negative ones among them, in either dtype that ONNX has for them;
    a scalar where it is degenerate.
    """
    shape = d.sides(d.rank_with(op.axis))
    sides = d.shape(0 if d.degenerate else 1, 2)
    dtype = d.choose(("int64", "int32"))
    return d.tensor(shape), d.index(sides, shape[op.axis], negative=d.flag(), dtype=dtype)


@inputs(movement.Pad)
def pad_inputs(d: Draw, op: movement.Pad) -> tuple[Tensor | None, ...]:
    """Both ends of some axes; constants also cut off, reflections stay inside the tensor, which is
    wrapped around more than once.

    Every other tensor is a batch of signals, images or volumes, of which the pixels are padded.
    Axes that are not padded are left out, or have zeros.
    """
    constant, first = op.mode == "constant", d.choose((0, 2))
    rank = d.rank(1 + first, 3 + first)
    shape = d.sides(rank, least=1 if constant else 2, most=5, empty=constant)
    padded = range(first, rank)
    axes = d.choose(tuple(permutations(padded, d.integer(1, len(padded)))))
    low = [-min(3, (shape[axis] - 1) // 2) if constant and shape[axis] else 0 for axis in axes]
    high = [min(5, shape[axis] - 1) if op.mode == "reflect" else 5 for axis in axes]
    ends = [d.integer(a, b) for a, b in [*zip(low, high, strict=True)] * 2]
    value = d.maybe(d.tensor((), "normal")) if constant else None
    x = d.tensor(shape)
    if d.flag():
        sides = dict(zip((*axes, *(rank + axis for axis in axes)), ends, strict=True))
        pads = d.literal([sides.get(i, 0) for i in range(2 * rank)])
        return (x, pads) if value is None else (x, pads, value)
    return x, d.literal(ends), value, d.literal([axis - rank * d.flag() for axis in axes])


@inputs(movement.Where)
def where_inputs(d: Draw, op: movement.Where) -> tuple[Tensor, Tensor, Tensor]:
    """A condition and two tensors, of which any may broadcast."""
    shape = d.shape(0, 3)
    condition, x, y = (d.broadcastable(shape) if d.flag() else shape for _ in range(3))
    return d.mask(condition), d.tensor(x), d.tensor(y)


@inputs(movement.Expand)
def expand_inputs(d: Draw, op: movement.Expand) -> tuple[Tensor, Tensor]:
    """A shape that has more axes, or 1 where the tensor has more."""
    full = d.shape(2, 3)
    grown = d.integer(0, len(full) - 1)
    x = tuple(1 if i == grown else n for i, n in enumerate(full))
    x = x[1:] if grown == 0 and d.flag() else d.broadcastable(full) if d.degenerate else x
    kept = len(full) - len(x)
    target: Shape = tuple(
        1 if i >= kept and x[i - kept] == n and d.flag() else n for i, n in enumerate(full)
    )
    return d.tensor(x), d.literal(target)


@inputs(movement.Tile)
def tile_inputs(d: Draw, op: movement.Tile) -> tuple[Tensor, Tensor]:
    """Once to three times along each axis, or one axis; not at all where it is degenerate."""
    x = d.shape(1, 4)
    repeats = [d.integer(0 if d.degenerate else 1, 3) for _ in x]
    if d.sizes.size > WIDE:
        only = d.integer(0, len(x) - 1)
        repeats = [n if i == only else 1 for i, n in enumerate(repeats)]
    return d.tensor(x), d.literal(repeats)


@inputs(movement.Dropout)
def dropout_inputs(d: Draw, op: movement.Dropout) -> tuple[Tensor | None, ...]:
    """With a mask and a ratio, with a mask alone, and without: in inference, and in training where
    nothing is dropped.
    """
    shape = d.shape(0, 4)
    ratio = d.maybe(d.literal(d.choose((0.25, 0.0, 0.75)), dtype=d.dtype))
    if shape and d.flag():
        return d.tensor(shape), ratio, d.mask(shape)
    if d.flag():
        kept = ratio is not None and ratio.data == (0.0,)
        return d.tensor(shape), ratio, d.literal(kept and d.flag(), "bool")
    return (d.tensor(shape),) if ratio is None else (d.tensor(shape), ratio)


@inputs(movement.Flatten)
def flatten_inputs(d: Draw, op: movement.Flatten) -> tuple[Tensor]:
    """As many axes as there must be, or more."""
    least = abs(op.axis)
    return (d.tensor(d.sides(d.rank(least, max(4, least)), empty=True)),)


@inputs(movement.Squeeze)
def squeeze_inputs(d: Draw, op: movement.Squeeze) -> tuple[Tensor, ...]:
    """Ones among other sizes; all of them dropped, or some by name."""
    shape, ones = with_ones(d)
    if not ones or d.flag():
        return (d.tensor(shape),)
    return d.tensor(shape), d.literal(from_either_end(d, ones, len(shape)))


@inputs(movement.Unsqueeze)
def unsqueeze_inputs(d: Draw, op: movement.Unsqueeze) -> tuple[Tensor, ...]:
    """Axes anywhere in y, in any order."""
    shape, ones = with_ones(d)
    sides = tuple(n for axis, n in enumerate(shape) if axis not in ones)
    return d.tensor(sides), d.literal(from_either_end(d, ones, len(shape)))


def with_ones(d: Draw) -> tuple[Shape, tuple[int, ...]]:
    """A shape with one to two sizes of 1, and where they are."""
    sides = list(d.shape(0, 3))
    ones = sorted({d.integer(0, len(sides)) for _ in range(d.integer(1, 2))})
    for axis in ones:
        sides.insert(axis, 1)
    return tuple(sides), tuple(ones)


def from_either_end(d: Draw, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The same axes, backwards perhaps, and some counted from the end."""
    order = axes[::-1] if d.flag() else axes
    return tuple(axis - rank if d.flag() else axis for axis in order)


choices(
    movement.DepthToSpace,
    movement.SpaceToDepth,
    blocksize=lambda d: d.integer(1 if d.degenerate else 2, 4),
    mode=("DCR", "CRD"),
)


@inputs(movement.DepthToSpace, movement.SpaceToDepth)
def blocks_inputs(d: Draw, op: movement.Blocks) -> tuple[Tensor]:
    """Images whose channels, or sides, are so many times as large."""
    b = op.blocksize
    n, c, h, w = d.samples(empty=True), *d.sides(3)
    x = (n, c * b * b, h, w) if isinstance(op, movement.DepthToSpace) else (n, c, h * b, w * b)
    return (d.tensor(x),)


choices(movement.Trilu, upper=(1, 0))


@inputs(movement.Trilu)
def trilu_inputs(d: Draw, op: movement.Trilu) -> tuple[Tensor, ...]:
    """Matrices of any format; diagonals also beyond their corners."""
    shape = d.sides(d.rank(2, 4), empty=True, grain=True)
    x, k = d.tensor(shape), d.maybe(d.literal(d.integer(-4, 4)))
    return (x,) if k is None else (x, k)


@attributes(movement.CenterCropPad)
def center_attributes(d: Draw) -> movement.CenterCropPad:
    """All axes, or some of up to four, counted from the end, too."""
    return movement.CenterCropPad(
        axes=d.maybe(d.choose(permutations((-1, -2, 1, 0), d.integer(1, 2))))
    )


@inputs(movement.CenterCropPad)
def center_inputs(d: Draw, op: movement.CenterCropPad) -> tuple[Tensor, Tensor]:
    """One axis is cut, the other padded, by an even or an odd number."""
    x = d.sides(d.rank(1, 4) if op.axes is None else d.rank(4, 4), most=9)
    axes = range(len(x)) if op.axes is None else op.axes
    return d.tensor(x), d.literal([max(x[axis] + d.integer(-5, 5), 1) for axis in axes])


@attributes(movement.ReverseSequence)
def reverse_attributes(d: Draw) -> movement.ReverseSequence:
    """Time first, or samples first."""
    return movement.ReverseSequence(batch_axis=(batch := d.choose((1, 0))), time_axis=1 - batch)


@inputs(movement.ReverseSequence)
def reverse_inputs(d: Draw, op: movement.ReverseSequence) -> tuple[Tensor, Tensor]:
    """Lengths from one step to all of them."""
    shape = d.sides(d.rank(2, 4), grain=True)
    samples, steps = shape[op.batch_axis], shape[op.time_axis]
    lengths = [d.integer(1, steps) for _ in range(min(samples, PERIOD))]
    return d.tensor(shape), Tensor((samples,), "int64", ("cycled", *lengths))
