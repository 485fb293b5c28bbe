"""The C interface of a compiled operator, for ctypes: `include/d5test/interface.h` in Python.

NumPy and the standard library only: this runs in workers, perhaps under another interpreter.
"""

import ctypes
import struct
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_uint8, c_uint16, c_void_p
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

ABI = 2
MOST_DIMENSIONS = 16
ABSENT = -1
"""The number of axes of a tensor that is not there."""
OK, RAISED, UNSUPPORTED, FAULT = range(4)
INTEGER, REAL, TEXT, INTEGERS, REALS = range(5)
CPU, CUDA = 1, 2
BACKWARD, CONTIGUOUS, SHAPED = 1, 2, 4
FLAGS: Mapping[str, int] = MappingProxyType(
    {"optional": 1, "whole": 2, "mask": 4, "constant": 8, "unread": 16}
)
"""Of an input or output: it may be absent, is of int64, is of booleans or of the operator's type,
has no gradient, is absent among the outputs of `backward`."""
CODES: Mapping[str, int] = MappingProxyType({"i": 0, "f": 2, "b": 6})
"""DLPack's code of a type, by NumPy's letter of its kind."""
MESSAGE = 4096
"""Bytes of room for an error's text."""
DTYPES: Mapping[int, str] = MappingProxyType({32: "float32", 64: "float64"})
"""The dtypes that an operator is compiled for, by their bits."""


class Device(ctypes.Structure):
    """DLDevice."""

    _fields_ = (("type", c_int32), ("id", c_int32))


class Type(ctypes.Structure):
    """DLDataType."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", c_void_p),
        ("device", Device),
        ("ndim", c_int32),
        ("dtype", Type),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


PACKED = struct.Struct("@QiiiBBHQQQ")
"""A `Tensor` as bytes."""
assert PACKED.size == ctypes.sizeof(Tensor)


class Attribute(ctypes.Structure):
    """An attribute's value."""

    _fields_ = (
        ("name", c_char_p),
        ("kind", c_int32),
        ("count", c_int32),
        ("integers", POINTER(c_int64)),
        ("reals", POINTER(c_double)),
        ("text", c_char_p),
    )


class Choice(ctypes.Structure):
    """An attribute with its default, and other values to try."""

    _fields_ = (("value", Attribute), ("count", c_int32), ("others", POINTER(Attribute)))


class Port(ctypes.Structure):
    """An input or output."""

    _fields_ = (("name", c_char_p), ("dims", c_char_p), ("values", c_char_p), ("flags", c_int32))


class Message(ctypes.Structure):
    """Where an error is said."""

    _fields_ = (("text", c_void_p), ("size", ctypes.c_size_t))


Tensors = POINTER(Tensor)
Status = c_int32


class Table(ctypes.Structure):
    """D5Operator."""

    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("name", c_char_p),
        ("source", c_char_p),
        ("input_count", c_int32),
        ("output_count", c_int32),
        ("attribute_count", c_int32),
        ("flags", c_int32),
        ("device", c_int32),
        ("inputs", POINTER(Port)),
        ("outputs", POINTER(Port)),
        ("attributes", POINTER(Choice)),
        (
            "create",
            ctypes.CFUNCTYPE(
                Status, c_void_p, POINTER(Attribute), c_int32, c_int32, c_int32,
                POINTER(c_void_p), Message,
            ),
        ),
        ("destroy", ctypes.CFUNCTYPE(None, c_void_p)),
        ("infer", ctypes.CFUNCTYPE(Status, c_void_p, Tensors, Tensors, Message)),
        (
            "forward",
            ctypes.CFUNCTYPE(Status, c_void_p, Tensors, Tensors, c_void_p, Message),
        ),
        (
            "backward",
            ctypes.CFUNCTYPE(
                Status, c_void_p, Tensors, Tensors, Tensors, Tensors, c_void_p, Message
            ),
        ),
    )  # fmt: skip


def value(attribute: Attribute) -> Any:
    """An attribute's value as Python has it: lists as tuples."""
    if attribute.kind == TEXT:
        return attribute.text.decode()
    whole = attribute.kind in (INTEGER, INTEGERS)
    numbers = attribute.integers if whole else attribute.reals
    listed = tuple(numbers[k] for k in range(attribute.count))
    return listed[0] if attribute.kind in (INTEGER, REAL) else listed


def attribute(name: str, kind: int, value: Any) -> Attribute:
    """An attribute of a declared kind. Raises `TypeError` where the value is of another."""
    numbers = value if kind in (INTEGERS, REALS) else (value,)
    if kind == TEXT:
        if not isinstance(value, str):
            raise TypeError(f"attribute {name} is a text, not {value!r}")
        return Attribute(name.encode(), kind, 0, None, None, value.encode())
    if kind in (INTEGER, INTEGERS):
        if any(int(number) != number for number in numbers):
            raise TypeError(f"attribute {name} is whole, not {value!r}")
        whole = (c_int64 * len(numbers))(*map(int, numbers))
        return Attribute(name.encode(), kind, len(numbers), whole, None, None)
    real = (c_double * len(numbers))(*map(float, numbers))
    return Attribute(name.encode(), kind, len(numbers), None, real, None)


def tensors(arrays: Sequence[NDArray[Any] | None]) -> Any:
    """Arrays as an array of DLTensor. They must outlive it. `None` is one that is absent."""
    made: Any = (Tensor * max(len(arrays), 1))()
    ranks = [-1 if array is None else array.ndim for array in arrays]
    # an attribute, to live as long as what points to it
    made.sides = sides = (c_int64 * (2 * sum(rank for rank in ranks if rank > 0)))()
    where, first = ctypes.addressof(sides), 0
    for k, (array, rank) in enumerate(zip(arrays, ranks, strict=True)):
        if array is None:
            made[k].ndim = ABSENT
            continue
        item = array.itemsize
        # packed at once: a field of ctypes' takes as long as all of them here
        PACKED.pack_into(
            made, k * PACKED.size, array.__array_interface__["data"][0], CPU, 0, rank,
            CODES[array.dtype.kind], 8 * item, 1, where, where + 8 * rank, 0,
        )  # fmt: skip
        sides[first : first + 2 * rank] = [*array.shape, *(step // item for step in array.strides)]
        where, first = where + 16 * rank, first + 2 * rank
    return made


def unknown_shapes(count: int) -> Any:
    """Tensors of which only the shape is to be filled in."""
    made = (Tensor * max(count, 1))()
    for one in made:
        one.shape = (c_int64 * MOST_DIMENSIONS)()
    return made
