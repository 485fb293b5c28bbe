"""Cases of what goes along axes: reductions, softmax, and the classifiers' losses.

Axes are counted from either end, absent (all of them) or an empty list. The axis of a softmax is
never empty: no elements have no maximum. Of a loss's labels at least one counts.
"""

from collections.abc import Mapping
from math import prod
from operator import methodcaller

from d5test.case import Tensor
from d5test.reference.operators import reductions
from d5test.strategies.draw import (
    FAR_ABOVE,
    FAR_BELOW,
    LONG,
    MANY,
    NEGATIVE,
    ORDINARY,
    Draw,
    Regime,
    Shape,
)
from d5test.strategies.registry import choices, inputs
from d5test.strategies.sizes import WIDE

SCANNED = 1025
"""Elements of the longest axis along which partial sums are taken: a block of a scan and one."""
PERIOD = 60
"""After the first label and so many others they begin again."""
REDUCTIONS: tuple[type[reductions.Reduction], ...] = (
    reductions.ReduceSum,
    reductions.ReduceMean,
    reductions.ReduceMax,
    reductions.ReduceLogSumExp,
    reductions.ReduceMin,
    reductions.ReduceL1,
    reductions.ReduceL2,
    reductions.ReduceLogSum,
    reductions.ReduceSumSquare,
)


TYING = (reductions.ReduceMax, reductions.ReduceMin, reductions.ReduceLogSumExp)
"""Those that shift by the largest element, or choose it: equal ones are delicate."""
REGIMES: Mapping[type[reductions.Reduction], tuple[Regime, ...]] = {
    reductions.ReduceLogSumExp: (*ORDINARY, ("scaled", 10)),
    reductions.ReduceMax: (*ORDINARY, NEGATIVE, FAR_BELOW),
    reductions.ReduceMin: (*ORDINARY, ("uniform", 1, 4), FAR_ABOVE),
    reductions.ReduceL2: ("normal", "heavy", "uniform", "nonzero", ("scaled", -6)),
    reductions.ReduceLogSum: ("positive", ("uniform", 0, 0.5)),
}
"""Where they are delicate; of no vector of zeros the norm has a gradient, nor a sum its logarithm
that is not positive."""
FACTORS = 64
"""Of a product, which is neither too large nor too small then."""
NEAR_ONE: Regime = ("uniform", 0.75, 1.25)


def axes(d: Draw, rank: int) -> Tensor | None:
    """All axes (absent, or an empty list), or some, the last one first perhaps."""
    some = [axis - rank * d.flag() for axis in range(rank) if d.flag()]
    if len(some) > 1 and d.flag():
        some.reverse()
    return d.choose((d.literal(some), None)) if some else d.choose((None, d.literal(())))


@inputs(*REDUCTIONS)
def reduction_inputs(d: Draw, op: reductions.Reduction) -> tuple[Tensor | None, ...]:
    """ONNX leaves the mean over nothing open: not drawn. Exponentials overflow, unshifted."""
    shape = d.shape(0, empty=not isinstance(op, reductions.ReduceMean))
    if shape and d.many():
        long = d.integer(0, len(shape) - 1)  # each axis has a kernel of its own
        shape = (*shape[:long], MANY, *shape[long + 1 :])
        # the sum of these overflows float16, their mean does not
        more = (("uniform", 300, 400),) if isinstance(op, reductions.ReduceMean) else ()
        return d.tensor(shape, "positive", *more), axes(d, len(shape))
    tied = (("equal", *range(len(shape))),) if isinstance(op, TYING) and shape else ()
    return d.tensor(shape, *REGIMES.get(type(op), ORDINARY), *tied), axes(d, len(shape))


@inputs(reductions.ReduceProd)
def product_inputs(d: Draw, op: reductions.ReduceProd) -> tuple[Tensor | None, ...]:
    """Of one or two axes, which have few elements; zeros among them, too."""
    kept = d.choose((d.shape(0, 3), d.shape(0, 3), ()))
    few = d.sides(d.choose((1, 1, 2)), most=4, empty=True, few=True)
    turn = d.integer(0, len(kept))
    shape = (*kept[:turn], *few, *kept[turn:])
    some = d.literal([turn + i - len(shape) * d.flag() for i in range(len(few))])
    free = bool(op.noop_with_empty_axes) or prod(shape) <= FACTORS
    regimes = NEAR_ONE, "nonzero", "ties", ("often", 0.0, 1.0), ("uniform", -2, 2)
    return d.tensor(shape, *regimes), d.choose((some, some, None, d.literal(()))) if free else some


choices(reductions.ReduceProd, *REDUCTIONS, keepdims=(1, 0), noop_with_empty_axes=(0, 0, 1))
choices(reductions.CumSum, reductions.CumProd, exclusive=(0, 0, 1), reverse=(0, 0, 1))


@inputs(reductions.CumSum)
def cumsum_inputs(d: Draw, op: reductions.CumSum) -> tuple[Tensor, Tensor]:
    """An axis counted from either end, without elements too.

    Its bars hold any order of each partial sum, one after another, so that it is never very long.
    """
    shape = d.sides(d.rank(1, 4), empty=True)
    axis = d.axis(len(shape))
    if max(shape) > WIDE:  # the side that is about a kernel is the one that matters
        axis = shape.index(max(shape)) - len(shape) * (axis < 0)
    if shape[axis] > SCANNED:
        shape = tuple(SCANNED if side == shape[axis] else side for side in shape)
    if d.many():
        shape = tuple(MANY if i == axis % len(shape) else side for i, side in enumerate(shape))
        return d.tensor(shape, "positive"), d.literal(axis)
    return d.tensor(shape), d.literal(axis)


@inputs(reductions.CumProd)
def cumprod_inputs(d: Draw, op: reductions.CumProd) -> tuple[Tensor, Tensor]:
    """An axis of few elements, counted from either end; zeros among them, too.

    The reference takes a product for each element: no axis is long, since a check may exchange it.
    """
    kept = tuple(min(side, FACTORS + 1) for side in d.shape(0, 3))
    (few,) = d.sides(1, most=9, empty=True, few=True)
    turn = d.integer(0, len(kept))
    shape = (*kept[:turn], few, *kept[turn:])
    regimes = NEAR_ONE, "nonzero", "ties", ("often", 0.0, 1.0), ("uniform", -2, 2)
    return d.tensor(shape, *regimes), d.literal(turn - len(shape) * d.flag())


choices(reductions.Softmax, reductions.LogSoftmax, axis=methodcaller("any_axis", 4))


@inputs(reductions.Softmax, reductions.LogSoftmax)
def softmax_inputs(d: Draw, op: reductions.AlongAxis) -> tuple[Tensor | None, ...]:
    """Any tensor that has the axis; large values, too, which saturate, and overflow unshifted."""
    shape = list(d.sides(d.rank_with(op.axis), empty=True, grain=True))
    shape[op.axis] = shape[op.axis] or 1
    if d.many():
        shape = [2 for _ in shape]
        shape[op.axis] = LONG
        return (d.tensor(tuple(shape), ("uniform", 0, 0.01)),)
    regimes = *ORDINARY, ("scaled", 3), ("scaled", 10), ("equal", op.axis)
    return (d.tensor(tuple(shape), *regimes),)


choices(reductions.LpNormalization, axis=methodcaller("any_axis", 4), p=(2, 1))


@inputs(reductions.LpNormalization)
def lp_normalization_inputs(d: Draw, op: reductions.LpNormalization) -> tuple[Tensor]:
    """Any tensor that has the axis. Of a vector of zeros the norm has no gradient, and of a short
    one the cube of its reciprocal, which frameworks multiply by, overflows float16: not drawn.
    """
    shape = d.sides(d.rank_with(op.axis), empty=True, grain=True)
    return (d.tensor(shape, "nonzero", "positive", ("uniform", 0.25, 1), ("uniform", -9, -1)),)


choices(
    reductions.NegativeLogLikelihoodLoss,
    reductions.SoftmaxCrossEntropyLoss,
    reduction=("mean", "sum", "none"),
    ignore_index=(None, 0, 1, -1, -100, 255),
)


@inputs(reductions.NegativeLogLikelihoodLoss, reductions.SoftmaxCrossEntropyLoss)
def loss_inputs(d: Draw, op: reductions.Loss) -> tuple[Tensor | None, ...]:
    """With weights, with None in their place, and with neither."""
    n, classes, *rest = d.sides(d.choose((2, 3, 4)), most=5)
    regimes = "normal", "uniform", "heavy", "ties", ("scaled", 10), ("equal", 1)
    scores = d.tensor((n, classes, *rest), *regimes)
    weights = d.maybe(d.tensor((classes,), "positive"))
    drawn = scores, labels(d, op.ignore_index, (n, *rest), classes), weights
    return drawn if weights is not None or d.flag() else drawn[:2]


def labels(d: Draw, ignored: int | None, shape: Shape, classes: int) -> Tensor:
    """Classes, and where one is ignored also that one; the first is never ignored."""
    if ignored is None:
        return d.index(shape, classes)
    counting = [label for label in range(classes) if label != ignored] or [0]
    others = [d.choose([*counting, ignored]) for _ in range(min(prod(shape) - 1, PERIOD))]
    drawn = [d.choose(counting), *others]
    if prod(shape) == len(drawn):
        return d.literal(drawn, shape=shape)
    return Tensor(shape, "int64", ("cycled", *drawn))
