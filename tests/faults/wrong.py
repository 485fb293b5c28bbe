"""What the backends that are wrong on purpose have in common, and those wrong in their values.

Each is NumPy with one fault, which every operator has: `forward` and `backward` get what an honest
row computes. They run in this process and in a worker.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import FLOATS, Row
from d5test.backends.numpy import Numpy, Traced

Array = NDArray[Any]
Arrays = tuple[Any, ...]
Honest = partial[Arrays]
"""An honest row, its first argument (the operator) given."""
Gradients = list[Any]


class Wrong(Numpy):
    """Every row of NumPy, through `forward`; every gradient, through `backward`."""

    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.rows: Mapping[str, Row] = {  # type: ignore[misc]
            name: replace(row, call=partial(self._call, row), dtypes=self.dtypes)
            for name, row in Numpy.rows.items()
        }

    def _call(self, row: Row, op: Any, *inputs: Any) -> Any:
        if any(isinstance(x, Traced) for x in inputs):
            return row.call(op, *inputs)
        return self.forward(partial(row.call, op), *inputs)

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return honest(*inputs)

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return gradients

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[Arrays, Gradients]:
        outputs, gradients = super().vjp(function, inputs, grads, wanted)
        return outputs, self.backward(gradients, tuple(inputs), tuple(grads))


def floating(x: Any) -> bool:
    return x is not None and x.dtype.kind == "f"


class Zeros(Wrong):
    """Outputs that nothing has been written to."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(np.zeros_like(y) for y in honest(*inputs))


class Mean(Wrong):
    """Every element is the mean: right for uniform values and long sums."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(np.full_like(y, np.mean(y)) if y.size else y for y in honest(*inputs))


class Identity(Wrong):
    """The input itself."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return (inputs[0].copy(), *honest(*inputs)[1:])


class Upcast(Wrong):
    """float64 out, whatever comes in."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(y.astype(np.float64) for y in honest(*inputs))


class Squeezed(Wrong):
    """A last dimension that should not be there."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(y[..., np.newaxis] for y in honest(*inputs))


class OffsetInDouble(Wrong):
    """An approximation that is good enough for float32, also in float64; its slope is right."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(
            y + 1e-9 if y.dtype == np.float64 and self.reaches(y.shape) else y
            for y in honest(*inputs)
        )

    def reaches(self, shape: tuple[int, ...]) -> bool:
        return True


class OffsetInRows(OffsetInDouble):
    """The same, in the vector code for rows of five numbers and more, and 40 of them and more."""

    def reaches(self, shape: tuple[int, ...]) -> bool:
        rows = len(shape) > 2 and min(shape) > 1 and shape[-1] >= 5
        return rows and math.prod(shape) >= 40


class LowPrecisionSums(Wrong):
    """16-bit sums of contiguous matrices, one element after the other; the others are right."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        a, b = inputs
        plain = a.flags.owndata and b.flags.owndata  # as no other layout is
        if a.dtype.itemsize > 2 or a.ndim != 2 or b.ndim != 2 or not plain:
            return honest(*inputs)
        total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
        for k in range(a.shape[1]):
            total = (total + (a[:, k, None] * b[None, k]).astype(a.dtype)).astype(a.dtype)
        return (total,)


class AnotherCall(Wrong):
    """The same operator by another call of the framework is 1% off."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        row = replace(self.rows["MatMul"], call=self._off)
        self.forms = {"MatMul": {"numpy.dot": row}}  # type: ignore[misc]

    def _off(self, op: Any, *inputs: Any) -> Any:
        ys = Numpy.rows["MatMul"].call(op, *inputs)
        return tuple(
            y if isinstance(y, Traced) else np.asarray(y * y.dtype.type(1.01)) for y in ys
        )


class AnotherCallInDouble(AnotherCall):
    """Another call of the framework computes with integers in float64."""

    def _off(self, op: Any, *inputs: Any) -> Any:
        row, first = Numpy.rows["MatMul"].call, inputs[0]
        if isinstance(first, Traced) or first.dtype.kind not in "iu":
            return row(op, *inputs)
        return tuple(y.astype(first.dtype) for y in row(op, *(x.astype(float) for x in inputs)))


class Nondeterministic(Wrong):
    """The last bit depends on how often it was called."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._calls = 0

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        self._calls += 1
        outputs = honest(*inputs)
        if self._calls % 2:
            return outputs
        return tuple(
            np.where(np.isfinite(y), np.nextafter(y, y.dtype.type(0)), y) if floating(y) else y
            for y in outputs
        )

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs, gradients = super().vjp(function, inputs, grads, wanted)
        return self.forward(lambda: outputs), gradients


class BatchDependent(Wrong):
    """Beyond 16 samples, those left over by the vector code are forgotten."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        outputs = honest(*inputs)
        for y in outputs:
            if y.ndim and y.shape[0] > 16:
                y[16:] = 0
        return outputs


class LayoutBlind(Wrong):
    """Reads what lies in memory, in the order in which it lies there."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return honest(*(as_it_lies(x) for x in inputs))


class LayoutOfTheFirst(Wrong):
    """Asks whether its first input is contiguous, and reads the others as if they were like it."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        first, *others = inputs
        if not first.flags.c_contiguous:
            return honest(*inputs)
        return honest(first, *map(as_it_lies, others))


class RowsWithoutGaps(Wrong):
    """Takes it for granted that a row without gaps begins where the one before it ends."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return honest(*(as_it_lies(x) if whole_rows(x) else x for x in inputs))


def whole_rows(x: Array | None) -> bool:
    """Whether elements of a row lie beside each other."""
    return x is not None and x.ndim > 1 and x.strides[-1] == x.itemsize


def as_it_lies(x: Array | None) -> Array | None:
    if x is None or x.flags.c_contiguous:
        return x
    memory = x
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    return np.resize(memory.ravel(order="K"), x.shape)


class SizeOne(Wrong):
    """An axis of size one is taken for one that is broadcast, and not read."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(np.zeros_like(y) if 1 in y.shape else y for y in honest(*inputs))


class ZeroSizeShape(Wrong):
    """Nothing in, a vector of nothing out."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(y if y.size else np.zeros(0, y.dtype) for y in honest(*inputs))


class NanSwallowed(Wrong):
    """NaN is taken for zero."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return honest(*(np.where(np.isnan(x), 0, x).astype(x.dtype) if floating(x) else x
                        for x in inputs))  # fmt: skip


class NanIsGreater(Wrong):
    """Says that whatever is not at most b is greater, and so is a NaN."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        a, b = inputs
        return (np.asarray(~(a <= b)),)


class IntegersInDouble(Wrong):
    """Integers are computed with in float64."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        whole = [x is not None and x.dtype.kind in "iu" for x in inputs]
        wide = (x.astype(float) if w else x for x, w in zip(inputs, whole, strict=True))
        outputs = honest(*wide)
        return tuple(y.astype(inputs[0].dtype) for y in outputs) if any(whole) else outputs


class NanInvented(Wrong):
    """One NaN spoils the whole output."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        spoilt = any(floating(x) and np.isnan(x).any() for x in inputs)
        outputs = honest(*inputs)
        return tuple(np.full_like(y, np.nan) for y in outputs) if spoilt else outputs


class Truncating(Wrong):
    """Shapes that do not fit are cut until they do."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        a, b = inputs
        if a.ndim and b.ndim:
            n = min(a.shape[-1], b.shape[-2 if b.ndim > 1 else -1])
            a, b = a[..., :n], b[..., :n, :] if b.ndim > 1 else b[:n]
        return honest(a, b)


class Broadcasting(Wrong):
    """Shapes that do not fit are repeated until they do."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        try:
            return honest(*inputs)
        except ValueError:
            rank = max(x.ndim for x in inputs)
            whole = [x.reshape((1,) * (rank - x.ndim) + x.shape) for x in inputs]
            shape = tuple(max(sides) for sides in zip(*(x.shape for x in whole), strict=True))
            return honest(*(np.resize(x, shape) for x in whole))


class Undeclared(Wrong):
    """Says that it takes float32 alone, and takes everything."""

    dtypes = ("float32",)


class DeclaredInVain(Wrong):
    """Says that it takes float16, and raises."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        if any(x is not None and x.dtype == np.float16 for x in inputs):
            raise TypeError("not implemented for 'Half'")
        return honest(*inputs)
