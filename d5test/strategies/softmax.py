"""Cases of Softmax and LogSoftmax. The axis has elements: nothing is the maximum of none."""

from __future__ import annotations

from functools import partial

from d5test.case import Tensor
from d5test.reference.operators import softmax as ops
from d5test.strategies.draw import ORDINARY, Draw
from d5test.strategies.registry import attributes, inputs

OPERATORS: tuple[type[ops.AlongAxis], ...] = (ops.Softmax, ops.LogSoftmax)
RANK = 3


def softmax_attributes(cls: type[ops.AlongAxis], d: Draw) -> ops.AlongAxis:
    """An axis counted from either end."""
    return cls(axis=d.axis(d.rank(1, RANK)))


def softmax_inputs(d: Draw, op: ops.AlongAxis) -> tuple[Tensor | None, ...]:
    """Any tensor that has the axis; large values, too, which saturate, and overflow unshifted."""
    least = -op.axis if op.axis < 0 else op.axis + 1
    rank = d.rank(least, max(least, RANK))
    shape = list(d.sides(rank, empty=True))
    shape[op.axis] = shape[op.axis] or 1
    return (d.tensor(tuple(shape), *ORDINARY, ("scaled", 3), ("scaled", 10)),)


for operator in OPERATORS:
    attributes(operator)(partial(softmax_attributes, operator))
    inputs(operator)(softmax_inputs)
