"""Cases of the operators that take from places, or put at them: from either end, some twice."""

from math import prod
from operator import methodcaller

from d5test.case import Tensor
from d5test.reference.operators import indexing
from d5test.strategies.draw import FAR_ABOVE, FAR_BELOW, NEGATIVE, Draw, Shape
from d5test.strategies.movement import PERIOD
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
    rows: Shape = (min(d.side(), most),)
    if d.flag() and most >= 2 * rows[0]:
        rows = (2, *rows)
    places = Tensor((*rows, len(limits)), "int64", ("distinct" if once else "places", *limits))
    return d.tensor(shape), places, d.tensor((*rows, *shape[len(limits) :]))


ORDERS: tuple[type[indexing.Ordered], ...] = (
    indexing.TopK, indexing.ArgMax, indexing.ArgMin, indexing.Hardmax,
)  # fmt: skip
choices(indexing.TopK, axis=methodcaller("any_axis", 4), largest=(1, 0))
choices(indexing.Hardmax, axis=methodcaller("any_axis", 4))
choices(
    indexing.ArgMax,
    indexing.ArgMin,
    axis=methodcaller("any_axis", 4),
    keepdims=(1, 0),
    select_last_index=(0, 0, 1),
)


@inputs(*ORDERS)
def ordered_inputs(d: Draw, op: indexing.Ordered) -> tuple[Tensor, ...]:
    """Numbers that a lower precision does not tell apart; equal ones; some elements or all."""
    shape = d.sides(d.rank_with(op.axis), grain=True)
    n = shape[op.axis]
    far = FAR_ABOVE if isinstance(op, indexing.ArgMin) else FAR_BELOW
    x = d.tensor(shape, "crowded", "normal", "crowded", "ties", ("equal", op.axis), NEGATIVE, far)
    if not isinstance(op, indexing.TopK):
        return (x,)
    return x, d.literal([d.choose((n, (n + 1) // 2, 1))])


choices(indexing.Compress, axis=lambda d: d.maybe(d.any_axis(4)))


@inputs(indexing.Compress)
def compress_inputs(d: Draw, op: indexing.Compress) -> tuple[Tensor, Tensor]:
    """A condition for each entry, or for some: the last ones are left out."""
    shape = d.sides(d.rank(1, 4) if op.axis is None else d.rank_with(op.axis), grain=True)
    n = prod(shape) if op.axis is None else shape[op.axis]
    return d.tensor(shape), d.mask((max(n - d.choose((0, 0, 1)), min(n, 1)),))


choices(indexing.OneHot, axis=lambda d: d.choose((-1, 0, 1, -2)))


@inputs(indexing.OneHot)
def one_hot_inputs(d: Draw, op: indexing.OneHot) -> tuple[Tensor, Tensor, Tensor]:
    """Indices from either end, and of nothing."""
    shape = d.sides(d.rank(1, 3))
    depth = d.side(most=7)
    beyond = d.choose((0, 0, 2))
    depth_in = d.literal(depth) if d.flag() else d.literal([depth])
    return d.index(shape, depth + beyond, negative=d.flag()), depth_in, d.tensor((2,), "normal")


choices(indexing.TensorScatter, axis=(-2, 1, -1, 2), mode=("linear", "circular"))


@inputs(indexing.TensorScatter)
def tensor_scatter_inputs(d: Draw, op: indexing.TensorScatter) -> tuple[Tensor, ...]:
    """One step or more, which fit behind the first that is replaced, or go on from the front."""
    shape = list(d.sides(d.rank(3, 4), grain=True))
    steps = shape[op.axis]
    shape[op.axis] = d.choose((1, max(steps // 2, 1), steps))
    cache, update = (
        d.tensor((*shape[: op.axis], steps, *shape[op.axis :][1:])),
        d.tensor(tuple(shape)),
    )
    last = 2 * steps if op.mode == "circular" else steps - shape[op.axis]
    first = [d.integer(0, last) for _ in range(min(shape[0], PERIOD))]
    if d.flag():
        return cache, update
    return cache, update, Tensor((shape[0],), "int64", ("cycled", *first))
