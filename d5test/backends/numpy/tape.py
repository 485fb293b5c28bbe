"""Calls of reference operators that are recorded, so that NumPy can be differentiated.

16-bit arrays are computed with in float32: NumPy has no products of bfloat16. An output is rounded
to the dtype of the first floating-point input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Unsupported, name_of
from d5test.case import Operator

Array = NDArray[Any]
HALVES = ("float16", "bfloat16")


def is_floating(x: Array) -> bool:
    """Whether an array is of a floating-point dtype, ml_dtypes' bfloat16 included."""
    return bool(x.dtype.kind == "f" or name_of(x.dtype) == "bfloat16")


def widened(x: Array | None) -> Array | None:
    """A 16-bit array in float32: NumPy has no products of bfloat16."""
    return x.astype(np.float32) if x is not None and name_of(x.dtype) in HALVES else x


def rounded(y: Any, like: Sequence[Array | None]) -> Any:
    """A result in the dtype of the first floating-point input, if it is a floating-point one."""
    y = np.asarray(y)
    dtype = next((x.dtype for x in like if x is not None and is_floating(x)), y.dtype)
    return y.astype(dtype) if is_floating(y) else y


class Traced:
    """An array on its way through calls that are recorded, so that they can be differentiated."""

    def __init__(self, array: Array, tape: Tape) -> None:
        self.array = array
        self.tape = tape


class Recorded(NamedTuple):
    """A call that was made: its outputs as they were computed, and as they went on."""

    operator: Operator
    inputs: tuple[Traced | None, ...]
    computed: tuple[Any, ...]
    outputs: tuple[Traced, ...]

    def pulled(self, grads: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of the inputs."""
        if not self.operator.differentiable:
            raise Unsupported(f"the reference {self.operator!r} has no gradient")
        wide = tuple(None if x is None else widened(x.array) for x in self.inputs)
        return self.operator.vjp(tuple(widened(dy) for dy in grads), wide, self.computed)


class Tape:
    """Recorded calls, in the order in which they were made."""

    def __init__(self) -> None:
        self.calls: list[Recorded] = []

    def record(self, operator: Operator, inputs: tuple[Any, ...]) -> tuple[Traced, ...]:
        """Make a call on traced arrays, and on others, which are constants."""
        given = tuple(x if x is None or isinstance(x, Traced) else Traced(x, self) for x in inputs)
        arrays = [None if x is None else x.array for x in given]
        computed = operator(*(widened(x) for x in arrays))
        outputs = tuple(Traced(rounded(y, arrays), self) for y in computed)
        self.calls.append(Recorded(operator, given, computed, outputs))
        return outputs

    def pull(self, outputs: Sequence[Traced], grads: Sequence[Any]) -> dict[int, Any]:
        """The gradients of all traced arrays that the outputs depend on, by identity."""
        totals: dict[int, Any] = {}

        def add(x: Traced | None, dx: Any) -> None:
            if x is not None and dx is not None:
                before = totals.get(id(x))
                totals[id(x)] = dx if before is None else before + dx

        for y, dy in zip(outputs, grads, strict=False):
            add(y, dy)
        for call in reversed(self.calls):
            dys = [totals.get(id(y)) for y in call.outputs]
            if any(dy is not None for dy in dys):
                arrays = [None if x is None else x.array for x in call.inputs]
                for x, dx in zip(call.inputs, call.pulled(dys), strict=True):
                    add(x, None if dx is None else rounded(dx, arrays))
        return totals
