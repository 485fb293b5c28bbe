"""Cases of the normalisations: values with a large mean among them, and a small variance."""

from operator import methodcaller

import numpy as np

from d5test.case import Tensor
from d5test.reference.operators import normalisation as ops
from d5test.strategies.draw import Draw, Regime, Shape
from d5test.strategies.registry import choices, inputs

SPREAD: tuple[Regime, ...] = ("normal", "uniform", "heavy", ("scaled", -6), "offset")
"""Regimes whose values differ."""
LARGE: Regime = ("scaled", 9)
"""Numbers whose squares overflow float16, and whose normalised ones do not."""
EPSILONS = (ops.EPSILON, float(np.float32(1e-3)), 0.0625)
"""ONNX's, and two that show."""
RANK = 4


choices(
    ops.BatchNormalization,
    training_mode=(0, 1),
    epsilon=EPSILONS,
    momentum=methodcaller("real_or", 0, 1, ops.MOMENTUM, 0.5),
)
choices(
    ops.LayerNormalization,
    ops.RMSNormalization,
    axis=methodcaller("any_axis", RANK),
    epsilon=EPSILONS,
)
choices(ops.GroupNormalization, num_groups=methodcaller("integer", 1, 3), epsilon=EPSILONS)
choices(ops.InstanceNormalization, epsilon=EPSILONS)
choices(  # sizes are even, too, and wider than there are channels; an alpha that shows
    ops.LRN,
    size=(3, 1, 5, 2, 4),
    alpha=(0.5, 1.0, ops.ALPHA),
    beta=(0.75, 0.5, 1.0),
    bias=(1.0, 2.0, 0.5),
)


@inputs(ops.BatchNormalization)
def batch_normalization_inputs(d: Draw, op: ops.BatchNormalization) -> tuple[Tensor | None, ...]:
    """Without samples only where the statistics are given; in training never one value alone."""
    n = d.samples(most=5, empty=not op.training_mode)
    c, *rest = *d.channels(1, most=5), *d.sides(d.integer(0, 3), most=5, grain=True)
    if op.training_mode and not rest and not d.degenerate:
        n = max(n, 2)
    channels = d.tensor((c,)), d.tensor((c,)), d.tensor((c,)), d.tensor((c,), "positive")
    shape = (n, c, *rest)
    return d.tensor(shape, *SPREAD, *level(0, *range(2, len(shape)))), *channels


@inputs(ops.LayerNormalization)
def layer_normalization_inputs(d: Draw, op: ops.LayerNormalization) -> tuple[Tensor | None, ...]:
    """With a bias, with None in its place, and with neither."""
    x = x_shape(d, op.axis)
    scale = d.tensor(parameter_shape(d, x, op.axis))
    bias = d.maybe(d.tensor(parameter_shape(d, x, op.axis)))
    levels = level(*range(op.axis % len(x), len(x)))
    drawn = d.tensor(x, *SPREAD, LARGE, *levels), scale, bias
    return drawn if bias is not None or d.flag() else drawn[:2]


@inputs(ops.RMSNormalization)
def rms_normalization_inputs(d: Draw, op: ops.RMSNormalization) -> tuple[Tensor | None, ...]:
    """A scale over the normalised axes, or one that broadcasts to them."""
    x = x_shape(d, op.axis)
    regimes = *SPREAD, LARGE, ("constant", 0.0)
    return d.tensor(x, *regimes), d.tensor(parameter_shape(d, x, op.axis))


@inputs(ops.GroupNormalization)
def group_normalization_inputs(d: Draw, op: ops.GroupNormalization) -> tuple[Tensor | None, ...]:
    """As many channels as groups, or two or three times as many."""
    each = d.channels(1, most=3)[0]
    c = op.num_groups * each
    n = d.samples(most=5, empty=True)
    rest = [size + (size == c) for size in d.sides(d.integer(0, 2), most=5)]
    level_groups = level(*range(1, 2 + len(rest)))
    return d.tensor((n, c, *rest), *SPREAD, *level_groups), d.tensor((c,)), d.tensor((c,))


@inputs(ops.InstanceNormalization)
def instance_normalization_inputs(d: Draw, op: ops.InstanceNormalization) -> tuple[Tensor, ...]:
    """Signals, images and volumes."""
    n = d.samples(most=5, empty=True)
    c, *rest = *d.channels(1, most=5), *d.sides(d.choose((4, 3, 5)) - 2, most=5, grain=True)
    level_channels = level(*range(2, 2 + len(rest)))
    return d.tensor((n, c, *rest), *SPREAD, *level_channels), d.tensor((c,)), d.tensor((c,))


choices(ops.MeanVarianceNormalization, axes=((0, 2, 3), (2, 3), (1, 2, 3), (-1,), (1,), (0,)))


@inputs(ops.MeanVarianceNormalization)
def mean_variance_inputs(d: Draw, op: ops.MeanVarianceNormalization) -> tuple[Tensor]:
    """A shape that has the axes, along which so many elements are that they differ enough: of four
    alone one row in 10,000 has a variance whose reciprocal overflows float16.
    """
    rank = max(d.rank_with(axis, RANK) for axis in op.axes)
    shape = list(d.sides(rank, most=5, grain=True))
    for axis in op.axes:
        shape[axis] = max(shape[axis], 4 if len(op.axes) > 1 else 16)
    return (d.tensor(tuple(shape), "normal", "uniform", "heavy", "offset"),)


@inputs(ops.LRN)
def lrn_inputs(d: Draw, op: ops.LRN) -> tuple[Tensor | None, ...]:
    """Images, of one to three spatial axes."""
    rank = d.choose((4, 3, 5))
    n, c, *rest = d.samples(most=5), *d.channels(1, most=5), *d.sides(rank - 2, most=5)
    return (d.tensor((n, c, *rest), "normal", "uniform", ("scaled", 2)),)


def level(*axes: int) -> tuple[Regime, Regime]:
    """Values without a variance over these axes: epsilon alone is divided by. Twice as often."""
    return ("equal", *axes), ("equal", *axes)


def x_shape(d: Draw, axis: int) -> Shape:
    """A shape that has this axis; there may be no samples, but there is something in each."""
    rank = d.rank_with(axis, RANK)
    samples = d.sides(axis % rank, most=5, empty=True, grain=True)
    return *samples, *d.sides(rank - len(samples), most=5, grain=True)


def parameter_shape(d: Draw, x: Shape, axis: int) -> Shape:
    """The normalised shape, as a rule; otherwise one that broadcasts to it."""
    normalised = x[axis:]
    return d.broadcastable(normalised) if d.integer(0, 3) == 3 else normalised
