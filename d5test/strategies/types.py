"""Conversions from and to each dtype, and the numbers at which they have to decide."""

from d5test.case import FLOATS, Tensor, dtype_of
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


@attributes(types.BitCast)
def bit_cast(d: Draw) -> types.BitCast:
    """To a dtype of as many bits as the one under test has, or to it; in one draw of four of 8."""
    eight = d.choose((False, False, False, True))
    same = alike(d.dtype)
    return types.BitCast(to=NUMBERS[d.choose(alike("int8") if eight else (*same, d.dtype))])


@inputs(types.BitCast)
def bit_cast_inputs(d: Draw, op: types.BitCast) -> tuple[Tensor]:
    """The dtype under test is at one of both ends, if its bits are as many."""
    to = NAMES[op.to]
    sources = alike(to)
    dtype = d.choose((d.dtype,) if d.dtype in sources else sources)
    return (d.tensor(d.shape(0), *(("bits",) if "int" in dtype else ()), dtype=dtype),)


def alike(dtype: str) -> tuple[str, ...]:
    """The other dtypes with as many bits, any of which are a number: so no Booleans."""
    width = dtype_of(dtype).itemsize
    every = (*WHOLE, *FLOATS, *EIGHT_BITS)
    return tuple(name for name in every if name != dtype and dtype_of(name).itemsize == width)
