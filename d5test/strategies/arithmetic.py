"""Cases of the elementwise functions of two and more inputs: broadcast, and one input twice."""

from __future__ import annotations

from collections.abc import Mapping

from d5test.case import Tensor
from d5test.reference.operators import arithmetic as ops
from d5test.strategies.draw import ORDINARY, Draw, Regime, Shape
from d5test.strategies.registry import inputs

REGIMES: Mapping[type[ops.Binary], tuple[tuple[Regime, ...], tuple[Regime, ...]]] = {
    ops.Add: (ORDINARY, ORDINARY),
    ops.Sub: (ORDINARY, ORDINARY),
    ops.Mul: (ORDINARY, ORDINARY),
    ops.Div: (ORDINARY, ("nonzero", "positive")),
}
"""The regimes of both operands."""


def shapes(d: Draw) -> tuple[Shape, Shape]:
    """Two shapes that broadcast: the same, one or the other repeated, or both."""
    shape = d.shape(0)
    left, right = d.choose(((False, False), (False, True), (True, False), (True, True)))
    return (
        d.broadcastable(shape) if left else shape,
        d.broadcastable(shape) if right else shape,
    )


def twice(d: Draw) -> bool:
    """Whether one tensor is passed as both operands: a gradient is lost or doubled there."""
    return d.integer(0, 2) == 2


def binary_inputs(d: Draw, op: ops.Binary) -> tuple[Tensor | None, ...]:
    """Both operands, or one of them twice."""
    left, right = REGIMES[type(op)]
    if twice(d):
        a = d.tensor(d.shape(0), *right)
        return a, d.again(a, 0)
    a_shape, b_shape = shapes(d)
    return d.tensor(a_shape, *left), d.tensor(b_shape, *right)


for operator in REGIMES:
    inputs(operator)(binary_inputs)


@inputs(ops.Pow)
def pow_inputs(d: Draw, op: ops.Pow) -> tuple[Tensor | None, ...]:
    """A positive base with any exponent, a negative one with a whole exponent of int64."""
    if twice(d):
        x = d.tensor(d.shape(0), "positive")
        return x, d.again(x, 0)
    base, exponent = shapes(d)
    if d.flag():
        return d.tensor(base, "nonzero"), d.tensor(exponent, "ties", dtype="int64")
    return d.tensor(base, "positive"), d.tensor(exponent, ("uniform", -2, 2), "ties")


def several_inputs(d: Draw, op: ops.Extremum | ops.Sum) -> tuple[Tensor | None, ...]:
    """One to four inputs; of two, the second may be the first."""
    count = d.integer(1, 4)
    shape = d.shape(0)
    if count == 2 and twice(d):
        x = d.tensor(shape)
        return x, d.again(x, 0)
    first = d.tensor(shape)
    return first, *(d.tensor(d.broadcastable(shape)) for _ in range(count - 1))


@inputs(ops.Clip)
def clip_inputs(d: Draw, op: ops.Clip) -> tuple[Tensor | None, ...]:
    """Both bounds, one and none; the smaller may be the larger."""
    x = d.tensor(d.shape(0))
    low, high = (
        d.maybe(d.literal(d.real(*around), dtype=d.dtype)) for around in ((-2, 0.5), (-0.5, 2))
    )
    return (x, low, high) if high is not None else (x, low) if low is not None else (x,)


SEVERAL: tuple[type[ops.Extremum | ops.Sum], ...] = (ops.Max, ops.Min, ops.Sum)

for variadic in SEVERAL:
    inputs(variadic)(several_inputs)
