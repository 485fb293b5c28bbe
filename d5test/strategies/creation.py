"""Cases of tensors that are made of shapes and of numbers that count."""

from d5test.case import Operator, Tensor
from d5test.dtypes import NUMBERS
from d5test.reference.operators import creation
from d5test.strategies.draw import Draw
from d5test.strategies.registry import choices, inputs

COUNTED = ("int64", "int32", "int16")
"""Dtypes of ranges that have no rounding, which would decide how many elements there are."""

choices(
    creation.EyeLike,
    dtype=lambda d: d.choose((None, NUMBERS["int64"], NUMBERS[d.dtype], NUMBERS["bool"])),
    k=(0, 1, -1, 2, -3, 7),
)
NUMERALS = (0.0, 1.0, -2.5, 0.1, 96.0)
choices(
    creation.ConstantOfShape,
    value=lambda d: d.choose((
        ("float32", (1,), (0.0,)), (d.dtype, (1,), (d.choose(NUMERALS),)),
        (d.dtype, (1,), (d.choose(NUMERALS),)), (d.choose(COUNTED), (1,), (d.integer(-9, 9),)),
        ("bool", (1,), (d.flag(),)),
    )),
)  # fmt: skip
choices(creation.Shape, start=(0, 1, -2, 2, -9), end=(None, -1, 2, 3, 9))


@inputs(creation.EyeLike)
def eye_inputs(d: Draw, op: creation.EyeLike) -> tuple[Tensor]:
    """A matrix of numbers, or of whole ones where the result is not of the dtype under test."""
    x = d.tensor(d.sides(2))
    whole = Tensor(x.shape, "int32", ("below", 9))
    return (x if op.dtype == NUMBERS[d.dtype] else d.choose((x, whole)),)


@inputs(creation.ConstantOfShape)
def constant_inputs(d: Draw, op: creation.ConstantOfShape) -> tuple[Tensor]:
    """In half of the draws one element: of more, their mean is the result."""
    one = (1,) * d.integer(0, 3)
    return (d.literal(one if d.flag() else d.shape(0)),)


@inputs(creation.Range)
def range_inputs(d: Draw, op: creation.Range) -> tuple[Tensor, ...]:
    """Upwards and downwards; the limit may be a multiple of the step, or beside one; nothing."""
    dtype = d.choose(COUNTED)
    count, step = d.side(empty=True), d.choose((1, 2, 3, 7, -1, -2, -5))
    start = d.integer(-9, 9)
    limit = start + count * step - d.choose((0, 1, -1)) * (abs(step) > 1)
    return tuple(d.literal(n, dtype) for n in (start, limit, step))


@inputs(creation.Shape, creation.Size)
def sized_inputs(d: Draw, op: Operator) -> tuple[Tensor]:
    """Any shape."""
    return (d.tensor(d.shape(0)),)
