"""A native operator bound to calls of a framework that hands on one number: XLA, TensorFlow.

The number is the address of a `Bound`, which `source/row_major.h` has in C++. It says, too, which
tensors there are: a call has those alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

from d5test.native.bridges import kept
from d5test.native.library import Declared


class Bound(ctypes.Structure):
    """An operator's table, the operator made, and a bit for each input that is there, each of them
    that has a gradient, and each output that is there.
    """

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("made", ctypes.c_void_p),
        ("inputs", ctypes.c_uint64),
        ("slopes", ctypes.c_uint64),
        ("outputs", ctypes.c_uint64),
    )
    declared: Declared
    has_slope: tuple[bool, ...]
    """Of each input that is there, whether it has a gradient."""


BOUND: dict[int, Bound] = {}
"""By address, for ever: compiled programs and graphs hold the addresses."""


@cache
def address(
    one: Declared,
    attributes: Any,
    bits: int,
    guarded: bool,
    slopes: tuple[bool | None, ...],
    outputs: int,
) -> int:
    """The address for an operator of these inputs (`differentiable` of each), and of its first
    `outputs` outputs.
    """
    made = kept(one, attributes, bits, guarded)
    there = _mask([has is not None for has in slopes]), _mask([has is True for has in slopes])
    bound = Bound(ctypes.addressof(one.table), made.pointer, *there, (1 << outputs) - 1)
    bound.declared = one
    bound.has_slope = tuple(has for has in slopes if has is not None)
    BOUND[ctypes.addressof(bound)] = bound
    return ctypes.addressof(bound)


def differentiable(
    one: Declared, inputs: Sequence[Any], is_floating: Callable[[Any], bool]
) -> tuple[bool | None, ...]:
    """Of each input, whether it has a gradient; `None` of those that are absent."""
    return tuple(
        None if x is None else is_floating(x) and not port.constant
        for port, x in zip_longest(one.inputs, inputs)
    )


def _mask(bits: Sequence[bool]) -> int:
    return sum(1 << k for k, bit in enumerate(bits) if bit)
