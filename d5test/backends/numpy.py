"""The reference itself as a backend: NumPy in the dtype of its inputs, float32 for 16-bit ones.

It is judged like the others, so that every check is tried without a framework, and it shows what
the formula alone costs in accuracy. An output is rounded to the dtype of the first floating-point
input. Its gradients are the references' own `backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend, Row, Unsupported, bits, name_of
from d5test.backends.updater import ReferenceUpdater
from d5test.case import Operator
from d5test.reference.operators import OPERATORS
from d5test.reference.steps import STEPS

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


class Leaf(NamedTuple):
    """An input whose gradient may be wanted: `place` is where it stands in the caller's list."""

    place: int
    array: Array


class Recorded(NamedTuple):
    """A call that was made on leaves: what is to be differentiated."""

    operator: Operator
    inputs: tuple[Leaf | None, ...]


class Reference:
    """The row of one operator: its reference, with the attributes that are asked for."""

    def __init__(self, operator: type[Operator]) -> None:
        self._operator = operator

    def __call__(self, op: Any, *inputs: Any) -> Any:
        """The outputs; or, of leaves, what was called."""
        operator = self._operator(**op.attributes)
        if any(isinstance(x, Leaf) for x in inputs):
            return Recorded(operator, inputs)
        outputs = operator(*(widened(x) for x in inputs))
        return tuple(rounded(y, inputs) for y in outputs)


class NumpyUpdater(ReferenceUpdater):
    """The reference rules on NumPy arrays."""

    xp = np


class Numpy(Backend):
    """The reference operators on NumPy arrays."""

    framework = "numpy"
    rows: ClassVar[Mapping[str, Row]] = {
        name: Row(
            Reference(operator),
            gradient=""
            if operator.backward is not Operator.backward
            else "the reference has none",
        )
        for name, operator in {**OPERATORS, **STEPS}.items()
    }
    layouts = ("contiguous", "transposed", "strided", "reversed", "offset", "broadcast")
    mutable = True
    updaters: ClassVar[Mapping[str, Any]] = dict.fromkeys(("native", "reference"), NumpyUpdater)

    @property
    def version(self) -> str:
        """NumPy's."""
        return np.__version__

    def put(self, array: Array, dtype: str, layout: str = "contiguous") -> Array:
        """What lies between the values of a strided or before an offset array is 1 or true."""
        x = np.array(array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array, order="C")
        if layout == "transposed":
            return x.swapaxes(-1, -2).copy().swapaxes(-1, -2) if x.ndim > 1 else x
        if layout == "strided":
            return np.stack((x, np.ones_like(x)), -1)[..., 0]
        if layout == "reversed":
            return x[::-1].copy()[::-1] if x.ndim else x
        if layout == "offset":
            return np.append(np.ones(1, x.dtype), x)[1:].reshape(x.shape)
        if layout == "broadcast":
            if x.ndim == 0 or len({one.tobytes() for one in x}) != 1:
                raise Unsupported("a broadcast array has equal slices along its first axis")
            return np.lib.stride_tricks.as_strided(x[:1].copy(), x.shape, (0, *x.strides[1:]))
        return x

    def refill(self, tensor: Array, array: Array, dtype: str) -> None:
        """Overwrite an array in place."""
        tensor[...] = array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array

    def get(self, tensor: Array) -> tuple[Array, str]:
        """A copy."""
        return bits(np.array(tensor, order="C"))

    def wait(self, tensors: Sequence[Any]) -> None:
        """NumPy returns when it has computed."""

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        """The reference's own `backward`, on the inputs of the one operator that is called."""
        leaves = [None if x is None else Leaf(i, x) for i, x in enumerate(inputs)]
        recorded = function(*leaves)
        if not isinstance(recorded, Recorded):
            return tuple(recorded), [None] * len(wanted)
        operator, given = recorded
        arrays = tuple(None if x is None else x.array for x in given)
        if not operator.differentiable:
            raise Unsupported(f"the reference {operator!r} has no gradient")
        wide = tuple(widened(x) for x in arrays)
        outputs = operator(*wide)
        found = operator.vjp(tuple(widened(dy) for dy in grads), wide, outputs)
        totals: dict[int, Any] = {}
        for leaf, dx in zip(given, found, strict=True):
            if leaf is not None and dx is not None:
                before = totals.get(leaf.place)
                totals[leaf.place] = dx if before is None else before + dx
        gradients = [None if totals.get(i) is None else rounded(totals[i], arrays) for i in wanted]
        return tuple(rounded(y, arrays) for y in outputs), gradients

    def address(self, tensor: Array) -> tuple[int, int]:
        """The span of an array's memory."""
        first, last = np.lib.array_utils.byte_bounds(tensor)
        return (first, last) if tensor.size else (first, first)
