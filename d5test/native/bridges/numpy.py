"""Native operators on NumPy arrays, by ctypes: zero copy, differentiated by their own backward."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Plan, Row, name_of
from d5test.backends.numpy import Numpy, Traced, is_floating
from d5test.case import Operator
from d5test.native.bridges import asked, bits_of, first_floating, rows, sources, taken
from d5test.native.library import Declared, Made, Port

Array = NDArray[Any]


class Called(Operator):
    """A native operator as NumPy's tape wants it: arrays in, arrays out, and its own gradient."""

    made: Made

    def __init__(self, made: Made) -> None:
        object.__setattr__(self, "made", made)

    def forward(self, *inputs: Any) -> Any:
        """What the operator computes."""
        return self.made.forward(self._ready(inputs, self.made.declared.inputs))

    def backward(self, grads: Any, inputs: Any, outputs: Any) -> Any:
        """What the operator's own backward computes."""
        ports, results = self.made.declared.inputs, self.made.declared.outputs
        upstream = [None if p.whole else dy for p, dy in zip(results, grads, strict=False)]
        made = self._ready(upstream, results), self._ready(inputs, ports)
        return self.made.backward(*made, self._ready(outputs, results))

    def _ready(self, arrays: Sequence[Any], ports: Sequence[Port]) -> list[Array | None]:
        return [
            None if x is None else self._fit(x, port)
            for x, port in zip(arrays, ports, strict=False)
        ]

    def _fit(self, x: Array, port: Port) -> Array:
        taken(port, name_of(x.dtype), name_of(self.made.dtype))
        if port.whole:
            x = x.astype(np.int64, copy=False)
        # as DLPack has them: every stride is a whole number of elements
        in_elements = x.flags.aligned and not any(s % x.itemsize for s in x.strides)
        fits = in_elements and not self.made.declared.contiguous
        return x if fits else np.ascontiguousarray(x).reshape(x.shape)


def plan(one: Declared, guarded: bool, op: Any, *inputs: Any) -> Plan:
    """The function of the arrays: of traced ones, traced."""
    arrays = [x.array if isinstance(x, Traced) else x for x in inputs]
    attributes = asked(one, op, arrays)
    bits = bits_of(one, first_floating(one, arrays, is_floating).dtype)
    return partial(_call, Called(one.make(attributes, bits, guarded=guarded)))


def _call(called: Called, *inputs: Any) -> Any:
    tape = next((x.tape for x in inputs if isinstance(x, Traced)), None)
    return called(*inputs) if tape is None else tape.record(called, inputs)


class NativeNumpy(Numpy):
    """NumPy with native operators."""

    sources: ClassVar[Mapping[str, str]] = sources()
    rows: ClassVar[Mapping[str, Row]] = {**Numpy.rows, **rows(plan)}
