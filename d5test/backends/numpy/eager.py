"""The reference itself as a backend: NumPy in the dtype of its inputs, float32 for 16-bit ones.

It is judged like the others, so that every check is tried without a framework, and it shows what
the formula alone costs in accuracy. An output is rounded to the dtype of the first floating-point
input. Its gradients are the references' own `backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend, Row, Unsupported, bits
from d5test.backends.numpy.tape import Tape, Traced, rounded, widened
from d5test.backends.updater import ReferenceUpdater
from d5test.case import Operator
from d5test.reference.operators import OPERATORS
from d5test.reference.steps import STEPS

Array = NDArray[Any]


class Reference:
    """The row of one operator: its reference, with the attributes that are asked for."""

    def __init__(self, operator: type[Operator]) -> None:
        self._operator = operator

    def __call__(self, op: Any, *inputs: Any) -> Any:
        """The outputs; of traced arrays they are traced."""
        operator = self._operator(**op.attributes)
        tape = next((x.tape for x in inputs if isinstance(x, Traced)), None)
        if tape is not None:
            return tape.record(operator, inputs)
        outputs = operator(*(widened(x) for x in inputs))
        return tuple(rounded(y, inputs) for y in outputs)


class NumpyUpdater(ReferenceUpdater):
    """The reference rules on NumPy arrays."""

    xp: ClassVar[Any] = np


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
        """The references' own `backward`, of each call that the function makes."""
        tape = Tape()
        leaves = [None if x is None else Traced(x, tape) for x in inputs]
        result = function(*leaves)
        results = result if isinstance(result, tuple) else (result,)
        totals = tape.pull([y for y in results if isinstance(y, Traced)], grads)
        outputs = tuple(y.array if isinstance(y, Traced) else y for y in results)
        return outputs, [totals.get(id(leaves[i])) for i in wanted]
