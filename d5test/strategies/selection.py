"""Cases of what is chosen by values: few different ones, zeros, boxes that overlap."""

from d5test.case import Tensor
from d5test.reference.operators import selection
from d5test.strategies.draw import BEYOND, Draw
from d5test.strategies.registry import choices, inputs

choices(selection.Unique, axis=(None, None, None, -1, 0, 1, -2, 2, -3), sorted=(1, 0))
choices(
    selection.NonMaxSuppression,
    center_point_box=lambda d: 0 if d.dtype in BEYOND else d.integer(0, 1),
)
MOST = 65
"""Boxes, each of which meets each other one."""
OVERLAPS = (17 / 32, 19 / 64, 19 / 32)
"""No area of whole sides below 7 is a multiple of 17 or 19: none is just as large."""


@inputs(selection.NonZero)
def nonzero_inputs(d: Draw, op: selection.NonZero) -> tuple[Tensor]:
    """Zeros among numbers, whole numbers or booleans; NaN, which is not zero."""
    shape = d.shape(1)
    numbers = d.tensor(shape, "ties", ("often", 0.0, -0.0), "onehot", "unbounded")
    return (d.choose((numbers, d.mask(shape), Tensor(shape, "int32", ("within", 2)))),)


@inputs(selection.Unique)
def unique_inputs(d: Draw, op: selection.Unique) -> tuple[Tensor]:
    """Numbers of which many are equal; few of them in a slice, so that slices are, too."""
    shape = list(d.shape(1) if op.axis is None else d.sides(d.rank_with(op.axis, 3), few=True))
    if op.axis is not None:
        shape[op.axis] = d.side()
    return (d.tensor(tuple(shape), "ties", ("below", 2), "normal"),)


@inputs(selection.NonMaxSuppression)
def boxes_inputs(d: Draw, op: selection.NonMaxSuppression) -> tuple[Tensor | None, ...]:
    """Boxes at whole numbers, some without an area, so that a comparison is exact; round a centre
    at any numbers. All or some of them; thresholds or none.
    """
    batches, classes = d.sides(2, most=3, few=True)
    n = min(d.side(), MOST)
    boxes, scores = (
        d.tensor((batches, n, 4), ("uniform", 1, 8) if op.center_point_box else ("naturals", 7)),
        d.tensor((batches, classes, n), "normal"),
    )
    most, least = d.literal([d.choose((n, 2, 1))]), d.maybe(d.literal([d.real(-1, 1)], d.dtype))
    overlap = None if least is None and d.flag() else d.literal([d.choose(OVERLAPS)], d.dtype)
    given = [boxes, scores, most, overlap, least]
    return tuple(given[: 5 if least else 4 if overlap else 3])
