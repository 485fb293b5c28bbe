"""Cases of logic: booleans, integers of every width, and numbers of which many are none."""

from collections.abc import Callable

from d5test.case import Tensor
from d5test.reference.operators import logic
from d5test.reference.operators.broadcasting import Broadcasting
from d5test.strategies.draw import Draw, Shape
from d5test.strategies.registry import choices, inputs

INTEGERS = ("int32", "uint8", "int8", "int64", "uint16", "int16", "uint32", "uint64")

choices(logic.BitShift, direction=("LEFT", "RIGHT"))
choices(logic.IsInf, detect_negative=(1, 0), detect_positive=(1, 0))


def two(d: Draw, tensor: Callable[[Shape], Tensor]) -> tuple[Tensor, Tensor]:
    """Both operands, either of which may broadcast; or one of them twice."""
    shape = d.shape(0)
    a = tensor(shape if d.flag() else d.broadcastable(shape))
    if d.integer(0, 5) == 5:
        return a, d.again(a, 0)
    return a, tensor(shape if d.flag() else d.broadcastable(shape))


@inputs(logic.And, logic.Or, logic.Xor)
def boolean_inputs(d: Draw, op: logic.Logic) -> tuple[Tensor, ...]:
    """Booleans, half of them true."""
    return two(d, d.mask)


@inputs(logic.Not)
def not_inputs(d: Draw, op: logic.Not) -> tuple[Tensor, ...]:
    """Booleans of any shape."""
    return (d.mask(d.shape(0)),)


@inputs(logic.BitwiseAnd, logic.BitwiseOr, logic.BitwiseXor)
def bitwise_inputs(d: Draw, op: logic.Logic) -> tuple[Tensor, ...]:
    """Integers of one width, every bit of which may be set."""
    dtype = d.choose(INTEGERS)
    return two(d, lambda shape: Tensor(shape, dtype, ("bits",)))


@inputs(logic.BitwiseNot)
def bitwise_not_inputs(d: Draw, op: logic.BitwiseNot) -> tuple[Tensor, ...]:
    """Integers of any width and shape."""
    return (Tensor(d.shape(0), d.choose(INTEGERS), ("bits",)),)


@inputs(logic.BitShift)
def shift_inputs(d: Draw, op: logic.BitShift) -> tuple[Tensor, Tensor]:
    """By less than the width: what is beyond it was undefined before version 28."""
    dtype, shape = d.choose(INTEGERS), d.shape(0)
    width = int(dtype.lstrip("uint"))
    by = shape if d.flag() else d.broadcastable(shape)
    return Tensor(shape, dtype, ("bits",)), Tensor(by, dtype, ("below", width))


@inputs(logic.IsNaN, logic.IsInf)
def class_inputs(d: Draw, op: Broadcasting) -> tuple[Tensor]:
    """Half of the elements are NaN or infinite."""
    return (d.tensor(d.shape(0), "unbounded"),)
