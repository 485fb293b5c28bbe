"""Native operators on NumPy arrays, by ctypes: zero copy, differentiated by their own backward."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Plan, Row, Unsupported
from d5test.backends.numpy import Numpy
from d5test.backends.tape import Traced
from d5test.case import Operator
from d5test.native import interface
from d5test.native.bridges import available, given, row, sources
from d5test.native.library import Declared, Made

Array = NDArray[Any]


class Called(Operator):
    """A native operator as NumPy's tape wants it: arrays in, arrays out, and its own gradient."""

    made: Made
    dtype: np.dtype[Any]

    def __init__(self, made: Made, dtype: np.dtype[Any]) -> None:
        object.__setattr__(self, "made", made)
        object.__setattr__(self, "dtype", dtype)

    def forward(self, *inputs: Any) -> Any:
        """What the operator computes."""
        return self.made.forward(self._ready(inputs))

    def backward(self, grads: Any, inputs: Any, outputs: Any) -> Any:
        """What the operator's own backward computes."""
        made = self._ready(grads), self._ready(inputs), self._ready(outputs)
        return self.made.backward(*made)

    def _ready(self, arrays: Any) -> list[Array]:
        for x in arrays:
            if x is None or x.dtype != self.dtype:
                has = "an input left out" if x is None else x.dtype.name
                raise Unsupported(f"all inputs are {self.dtype.name}, not {has}")
        copied = self.made.declared.contiguous
        return [
            np.ascontiguousarray(x) if copied or not interface.in_elements(x) else x
            for x in arrays
        ]


def plan(one: Declared, op: Any, *inputs: Any, guarded: bool) -> Plan:
    """The function of the arrays: of traced ones, traced."""
    arrays = [x.array if isinstance(x, Traced) else x for x in inputs]
    attributes = given(one, op, arrays)
    dtype = arrays[0].dtype
    bits = interface.dtype_bits(dtype)
    if bits is None:
        raise Unsupported(f"{one.name} is compiled for float32 and float64, not {dtype.name}")
    return partial(_call, Called(one.make(attributes, bits, guarded=guarded), dtype))


def _call(called: Called, *inputs: Any) -> Any:
    tape = next((x.tape for x in inputs if isinstance(x, Traced)), None)
    return called(*inputs) if tape is None else tape.record(called, inputs)


def rows() -> dict[str, Row]:
    """The rows of all native operators."""
    return {
        one.name: row(one, partial(plan, one, guarded=False), partial(plan, one, guarded=True))
        for one in available()
        if not one.on_cuda
    }


class NativeNumpy(Numpy):
    """NumPy with native operators."""

    sources: ClassVar[Mapping[str, str]] = sources()
    rows: ClassVar[Mapping[str, Row]] = {**Numpy.rows, **rows()}
