"""Conversions from and to each dtype, and the numbers at which they have to decide."""

from d5test.case import FLOATS, Tensor
from d5test.dtypes import EIGHT_BITS, FOUR_BITS, NAMES, NUMBERS
from d5test.reference.operators import types
from d5test.strategies.draw import Draw
from d5test.strategies.registry import attributes, choices, inputs

WHOLE = tuple(f"{kind}{bits}" for bits in (8, 16, 32, 64) for kind in ("int", "uint"))
TARGETS = (*(6 * FLOATS), *EIGHT_BITS, *WHOLE, "bool", *FOUR_BITS)
"""To half of them a gradient flows: those of the others but the dtype under test."""


@attributes(types.Cast)
def cast(d: Draw) -> types.Cast:
    """Formats of eight bits saturate or do not; of others nothing is said."""
    to = d.choose(TARGETS)
    return types.Cast(to=NUMBERS[to], saturate=d.choose((1, 0)) if to in EIGHT_BITS else 1)


choices(types.CastLike, saturate=(1, 1, 1, 0))


@inputs(types.Cast)
def cast_inputs(d: Draw, op: types.Cast) -> tuple[Tensor]:
    """The dtype under test is at one of both ends, if that of `to` is a floating-point one."""
    return (source(d, NAMES[op.to]),)


@inputs(types.CastLike)
def cast_like_inputs(d: Draw, op: types.CastLike) -> tuple[Tensor, Tensor]:
    """The other tensor has a shape of its own, and values that nobody reads."""
    to = d.choose(TARGETS if op.saturate else EIGHT_BITS)
    like = Tensor((d.side(few=True),), to, ("constant", 1))
    return source(d, to), like


def source(d: Draw, to: str) -> Tensor:
    """What is converted to a dtype: from the one under test, or to it from another."""
    dtype = d.dtype
    if to == d.dtype:
        dtype = d.choose((*WHOLE, "bool", *EIGHT_BITS, *FOUR_BITS))
    elif to not in FLOATS and d.choose((False, False, False, True)):
        dtype = d.choose((*WHOLE, "bool"))
    if dtype == "bool":
        return d.mask(d.shape())
    regime = ("whole",) if "int" in dtype else ("borders", to)
    return Tensor(d.shape(), dtype, regime)
