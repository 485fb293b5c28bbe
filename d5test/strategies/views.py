"""Cases of the operators that change a shape: axes from either end, one, several or none."""

from __future__ import annotations

from d5test.case import Tensor
from d5test.reference.operators import views as ops
from d5test.strategies.draw import Draw, Shape
from d5test.strategies.registry import attributes, inputs


@attributes(ops.Flatten)
def flatten_attributes(d: Draw) -> ops.Flatten:
    """Every axis, from either end; also one behind the last."""
    return ops.Flatten(axis=d.choose((1, 0, 2, 3, -1, -2)))


@inputs(ops.Flatten)
def flatten_inputs(d: Draw, op: ops.Flatten) -> tuple[Tensor]:
    """As many axes as there must be, or more."""
    least = abs(op.axis)
    return (d.tensor(d.sides(d.rank(least, max(4, least)), empty=True)),)


@inputs(ops.Squeeze)
def squeeze_inputs(d: Draw, op: ops.Squeeze) -> tuple[Tensor, ...]:
    """Ones among other sizes; all of them dropped, or some by name."""
    shape, ones = with_ones(d)
    if not ones or d.flag():
        return (d.tensor(shape),)
    return d.tensor(shape), d.literal(from_either_end(d, ones, len(shape)))


@inputs(ops.Unsqueeze)
def unsqueeze_inputs(d: Draw, op: ops.Unsqueeze) -> tuple[Tensor, ...]:
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
