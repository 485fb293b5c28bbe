"""The outputs' shapes by the axes that are registered, where sizes may be symbols of a tracer's.

Where an author overrides `shapes`, the axes do not say them, and the library is asked: then sizes
become numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.native import interface
from d5test.native.library import Declared, NativeError, Port

Shape = tuple[Any, ...]


def shapes(
    one: Declared, inputs: Sequence[Shape | None], attributes: Mapping[str, Any], bits: int
) -> list[Shape]:
    """The shapes of the outputs that are there, of inputs with these; `None` is an absent one."""
    if one.shaped_by_axes:
        return by_axes(one, inputs)
    nothing = np.empty(0, interface.DTYPES[bits])
    placed = [
        None
        if shape is None
        else np.lib.stride_tricks.as_strided(nothing, tuple(map(int, shape)), (0,) * len(shape))
        for shape in inputs
    ]
    return list(one.make(attributes, bits, guarded=False).shapes(placed))


def by_axes(one: Declared, inputs: Sequence[Shape | None]) -> list[Shape]:
    """By names alone. Raises `Unsupported` where sizes do not agree, and `NativeError` where an
    output has an axis that no input has.
    """
    sizes: dict[str, Shape] = {}
    for port, shape in zip(one.inputs, inputs, strict=True):
        if shape is None or port.dims == "*":
            continue
        names = port.dims.split()
        leading = len(shape) - len(names) + 1 if "..." in names else 0
        if leading < 0 or ("..." not in names and len(shape) != len(names)):
            raise Unsupported(f"{one.name}: input {port.name} has {len(shape)} axes")
        at = 0
        for name in names:
            size = shape[at : at + leading] if name == "..." else shape[at : at + 1]
            at += len(size)
            expected = (int(name),) if name.isdigit() else sizes.setdefault(name, size)
            if tuple(expected) != tuple(size):
                raise Unsupported(f"{one.name}: input {port.name} does not fit at axis {name}")
    return [_shape(one, port, sizes) for port in one.outputs]


def _shape(one: Declared, port: Port, sizes: Mapping[str, Shape]) -> Shape:
    found: Shape = ()
    for name in port.dims.split():
        if not name.isdigit() and name not in sizes:
            raise NativeError(
                f'{one.name} throws: no input has the axis "{name}" of output {port.name}: '
                "override shapes()"
            )
        found += (int(name),) if name.isdigit() else sizes[name]
    return found
