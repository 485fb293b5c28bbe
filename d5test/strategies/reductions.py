"""Cases of the reductions: which axes, counted from either end, absent, or none of them."""

from __future__ import annotations

from functools import partial

from d5test.case import Tensor
from d5test.reference.operators import reductions as ops
from d5test.strategies.draw import MANY, ORDINARY, Draw
from d5test.strategies.registry import attributes, inputs

OPERATORS: tuple[type[ops.Reduction], ...] = (
    ops.ReduceSum,
    ops.ReduceMean,
    ops.ReduceMax,
    ops.ReduceLogSumExp,
)


def axes(d: Draw, rank: int) -> Tensor | None:
    """All axes (absent, or an empty list), or some."""
    some = [axis - rank * d.flag() for axis in range(rank) if d.flag()]
    return d.choose((d.literal(some), None)) if some else d.choose((None, d.literal(())))


def reduction_inputs(d: Draw, op: ops.Reduction) -> tuple[Tensor | None, ...]:
    """ONNX leaves the mean over nothing open: not drawn. Exponentials overflow, unshifted."""
    shape = d.shape(0, empty=not isinstance(op, ops.ReduceMean))
    if shape and d.many():
        shape = (*shape[1:], MANY)
        return d.tensor(shape, "positive"), axes(d, len(shape))
    regimes = (*ORDINARY, ("scaled", 10)) if isinstance(op, ops.ReduceLogSumExp) else ORDINARY
    return d.tensor(shape, *regimes), axes(d, len(shape))


def reduction_attributes(cls: type[ops.Reduction], d: Draw) -> ops.Reduction:
    """Dimensions kept or not; what no axes mean."""
    return cls(keepdims=d.choose((1, 0)), noop_with_empty_axes=d.choose((0, 0, 1)))


for operator in OPERATORS:
    inputs(operator)(reduction_inputs)
    attributes(operator)(partial(reduction_attributes, operator))


@attributes(ops.CumSum)
def cumsum_attributes(d: Draw) -> ops.CumSum:
    """From either end, with the last term or without it."""
    return ops.CumSum(exclusive=d.choose((0, 1)), reverse=d.choose((0, 1)))


@inputs(ops.CumSum)
def cumsum_inputs(d: Draw, op: ops.CumSum) -> tuple[Tensor, Tensor]:
    """An axis counted from either end, without elements too."""
    shape = d.sides(d.rank(1, 4), empty=True)
    return d.tensor(shape), d.literal(d.axis(len(shape)))
