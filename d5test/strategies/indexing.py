"""Cases of the operators that take from places, or put at them: from either end, some twice."""

from math import prod
from operator import methodcaller

from d5test.case import Tensor
from d5test.reference.operators import indexing
from d5test.strategies.draw import Draw, Shape
from d5test.strategies.registry import choices, inputs

OFTEN = 3
"""As many updates for each place, on average, at most: products stay in range."""


choices(indexing.GatherElements, axis=methodcaller("any_axis", 4))
choices(
    indexing.ScatterElements,
    axis=methodcaller("any_axis", 4),
    reduction=("none", "add", "mul", "max", "min"),
)
choices(indexing.ScatterND, reduction=("none", "add", "mul", "max", "min"))
choices(indexing.GatherND, batch_dims=(0, 1, 2))


def beside(d: Draw, shape: Shape, axis: int, most: int) -> Shape:
    """A shape for indices into `shape`: as long or shorter, but along `axis`."""
    sides = [max(n - d.choose((0, 0, 1)), min(n, 1)) for n in shape]
    sides[axis] = min(d.side(), most)
    return tuple(sides)


@inputs(indexing.GatherElements)
def gather_elements_inputs(d: Draw, op: indexing.GatherElements) -> tuple[Tensor, Tensor]:
    """Indices of the shape of the data, or a smaller one; along the axis of any size."""
    shape = d.sides(d.rank_with(op.axis), grain=True)
    n = shape[op.axis]
    return d.tensor(shape), d.index(beside(d, shape, op.axis, OFTEN * n), n, negative=d.flag())


@inputs(indexing.ScatterElements)
def scatter_elements_inputs(d: Draw, op: indexing.ScatterElements) -> tuple[Tensor, ...]:
    """As for GatherElements; without a reduction no place is named twice."""
    shape = d.sides(d.rank_with(op.axis), grain=True)
    n = shape[op.axis]
    once = op.reduction == "none"
    sides = beside(d, shape, op.axis, n if once else OFTEN * n)
    axis = op.axis % len(shape)
    places = Tensor(sides, "int64", ("shuffled", n, axis) if once else ("within", n))
    return d.tensor(shape), places, d.tensor(sides)


@inputs(indexing.GatherND)
def gather_nd_inputs(d: Draw, op: indexing.GatherND) -> tuple[Tensor, Tensor]:
    """Indices along one or more axes behind those of the batch; rows of any number of axes."""
    b = op.batch_dims
    shape = d.sides(d.rank(b + 1, max(4, b + 1)), grain=True)
    limits = shape[b : b + d.integer(1, len(shape) - b)]
    rows = d.sides(d.integer(0 if d.degenerate else 1, 2))
    return d.tensor(shape), Tensor((*shape[:b], *rows, len(limits)), "int64", ("places", *limits))


@inputs(indexing.ScatterND)
def scatter_nd_inputs(d: Draw, op: indexing.ScatterND) -> tuple[Tensor, ...]:
    """Rows along one or two axes; without a reduction no place is named twice."""
    shape = d.sides(d.rank(1, 4), grain=True)
    limits = shape[: d.integer(1, len(shape))]
    once = op.reduction == "none"
    most = prod(limits) * (1 if once else OFTEN)
    rows = (min(d.side(), most),)
    if d.flag() and most >= 2 * rows[0]:
        rows = (2, *rows)
    places = Tensor((*rows, len(limits)), "int64", ("distinct" if once else "places", *limits))
    return d.tensor(shape), places, d.tensor((*rows, *shape[len(limits) :]))
