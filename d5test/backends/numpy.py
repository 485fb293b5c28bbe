"""The references themselves as a backend, in the dtype of their inputs.

16-bit inputs are computed with in float32: NumPy has no products of bfloat16. An output is rounded
to the dtype of the first floating-point input. The backend is judged like the others, so that
every check is tried without a framework, and it shows what the formula alone costs in accuracy.
Its gradients are the references' own `backward`, of the calls that a tape has recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import (
    Backend,
    Function,
    Pulled,
    Pushed,
    Row,
    Tensors,
    Unsupported,
    bits,
    from_bits,
    name_of,
)
from d5test.backends.updater import ReferenceUpdater
from d5test.case import Operator, is_float
from d5test.numerics.dual import Dual
from d5test.reference.operators import OPERATORS
from d5test.reference.steps import STEPS

Array = NDArray[Any]
HALVES = ("float16", "bfloat16")


def is_floating(x: Array) -> bool:
    """Whether an array is of a floating-point dtype, ml_dtypes' bfloat16 included."""
    return is_float(name_of(x.dtype))


def widened(x: Array | None) -> Array | None:
    """A 16-bit array in float32: NumPy has no products of bfloat16."""
    return x.astype(np.float32) if x is not None and name_of(x.dtype) in HALVES else x


def rounded(y: Any, like: Sequence[Array | None]) -> Any:
    """A result in the dtype of the first floating-point input, if it is a floating-point one."""
    y = np.asarray(y)
    dtype = next((x.dtype for x in like if x is not None and is_floating(x)), y.dtype)
    return y.astype(dtype) if is_floating(y) else y


@dataclass(eq=False)
class Traced:
    """An array on its way through calls that are recorded, so that they can be differentiated."""

    array: Any
    tape: Tape

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's."""
        return tuple(self.array.shape)


class Recorded(NamedTuple):
    """A call that was made: its outputs as they were computed, and as they went on."""

    operator: Operator
    inputs: tuple[Traced | None, ...]
    computed: tuple[Any, ...]
    outputs: tuple[Traced, ...]

    @property
    def arrays(self) -> list[Any]:
        """The inputs as they were given."""
        return [None if x is None else x.array for x in self.inputs]


class Tape:
    """Recorded calls, in the order in which they were made.

    `entered` makes of an input what an operator computes with, `left` of a result what goes on.
    """

    entered = staticmethod(widened)
    left = staticmethod(rounded)

    def __init__(self) -> None:
        self.calls: list[Recorded] = []

    def record(self, operator: Operator, inputs: tuple[Any, ...]) -> tuple[Traced, ...]:
        """Make a call on traced arrays, and on others, which are constants."""
        traced = tuple(
            x if x is None or isinstance(x, Traced) else Traced(x, self) for x in inputs
        )
        arrays = [None if x is None else x.array for x in traced]
        computed = operator(*(arrays if operator.typed else map(self.entered, arrays)))
        outputs = tuple(
            Traced(y if operator.typed else self.left(y, arrays), self) for y in computed
        )
        self.calls.append(Recorded(operator, traced, computed, outputs))
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
                for x, dx in zip(call.inputs, self.pulled(call, dys), strict=True):
                    add(x, dx)
        return totals

    def pulled(self, call: Recorded, grads: Sequence[Any]) -> Sequence[Any]:
        """The gradients of a call's inputs."""
        if not call.operator.differentiable:
            raise Unsupported(f"the reference {call.operator!r} has no gradient")
        if call.operator.typed:
            return call.operator.vjp(tuple(grads), tuple(call.arrays), call.computed)
        upstream, inputs = (tuple(map(self.entered, xs)) for xs in (grads, call.arrays))
        gradients = call.operator.vjp(upstream, inputs, call.computed)
        return [None if dx is None else self.left(dx, call.arrays) for dx in gradients]


class Duals(Tape):
    """A tape of which each array moves: `of` has those that do as dual numbers, by identity."""

    def __init__(self, tape: Tape, moves: Mapping[int, Any]) -> None:
        self.calls, self.of = tape.calls, dict[int, Any](moves)
        for call in self.calls:
            outputs = call.operator(*map(self.dual, call.inputs))
            self.of |= {id(y): dual for y, dual in zip(call.outputs, outputs, strict=True)}

    def dual(self, x: Traced | None) -> Any:
        """What stands for a traced array."""
        return None if x is None else self.of.get(id(x), self.entered(x.array))

    def pulled(self, call: Recorded, grads: Sequence[Any]) -> Sequence[Any]:
        """The gradients of a call's inputs, as dual numbers."""
        inputs, outputs = (tuple(map(self.dual, xs)) for xs in (call.inputs, call.outputs))
        upstream = (dy if dy is None or isinstance(dy, Dual) else Dual(dy) for dy in grads)
        return call.operator.vjp(tuple(upstream), inputs, outputs)


class Reference:
    """The row of one operator: its reference, with the attributes that are asked for."""

    def __init__(self, operator: type[Operator], tape: type[Tape] = Tape) -> None:
        self._operator, self._tape = operator, tape

    def __call__(self, op: Any, *inputs: Any) -> Any:
        """The outputs; of traced arrays they are traced."""
        operator = self._operator(**op.attributes)
        tape = next((x.tape for x in inputs if isinstance(x, Traced)), None)
        if tape is not None:
            return tape.record(operator, inputs)
        if operator.typed:
            return operator(*inputs)
        outputs = operator(*map(self._tape.entered, inputs))
        return tuple(self._tape.left(y, inputs) for y in outputs)


def reference_rows(
    operators: Mapping[str, type[Operator]], tape: type[Tape] = Tape, **row: Any
) -> dict[str, Row]:
    """The rows of reference operators, of which some have no `backward`."""
    none = "the reference has none"
    return {
        name: Row(
            Reference(operator, tape),
            gradient=none if operator.backward is Operator.backward else "",
            **row,
        )
        for name, operator in operators.items()
    }


def laid_out(xp: Any, x: Any, layout: str) -> Any:
    """A contiguous array of the module `xp` in another layout.

    What lies between the values of a strided array or between the rows of a sliced one, or before
    an offset one, is 1 or true.
    """
    if layout == "transposed" and x.ndim > 1:
        return x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if layout == "strided":
        return xp.stack((x, xp.ones_like(x)), -1)[..., 0]
    if layout == "sliced" and x.ndim:
        return xp.concatenate((x, xp.ones((*x.shape[:-1], 1), x.dtype)), -1)[..., :-1]
    if layout == "reversed" and x.ndim:
        return x[::-1].copy()[::-1]
    if layout == "offset":
        return xp.concatenate((xp.ones(1, x.dtype), x.ravel()))[1:].reshape(x.shape)
    if layout == "broadcast":
        if x.ndim == 0 or len({one.tobytes() for one in x}) != 1:
            raise Unsupported("a broadcast array has equal slices along its first axis")
        return xp.lib.stride_tricks.as_strided(x[:1].copy(), x.shape, (0, *x.strides[1:]))
    if layout == "expanded":
        if len({one.tobytes() for one in x.ravel()}) != 1:
            raise Unsupported("an expanded array is one number, over and over")
        return xp.lib.stride_tricks.as_strided(x.ravel()[:1].copy(), x.shape, (0,) * x.ndim)
    return x


class NumpyUpdater(ReferenceUpdater):
    """The reference rules on NumPy arrays."""

    xp: ClassVar[Any] = np


class Numpy(Backend):
    """The reference operators on NumPy arrays."""

    framework = "numpy"
    rows: ClassVar[Mapping[str, Row]] = reference_rows({**OPERATORS, **STEPS})
    layouts = (
        "contiguous", "transposed", "strided", "sliced", "reversed", "offset", "broadcast",
        "expanded",
    )  # fmt: skip
    mutable = True
    updaters: ClassVar[Mapping[str, Any]] = dict.fromkeys(("native", "reference"), NumpyUpdater)
    tape: ClassVar[type[Tape]] = Tape

    @property
    def version(self) -> str:
        return np.__version__

    def put(self, array: Array, dtype: str, layout: str = "contiguous") -> Array:
        x: Array = laid_out(np, np.array(from_bits(array, dtype), order="C"), layout)
        return x

    def refill(self, tensor: Array, array: Array, dtype: str) -> None:
        tensor[...] = from_bits(array, dtype)

    def get(self, tensor: Array) -> tuple[Array, str]:
        return bits(np.array(tensor, order="C"))

    def wait(self, tensors: Sequence[Any]) -> None:
        """NumPy returns when it has computed."""

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        """The references' own `backward`, of each call that the function makes."""
        tape, leaves, results = self._traced(function, inputs)
        totals = tape.pull(results, grads)
        return arrays_of(results), [totals.get(id(leaves[i])) for i in wanted]

    def jvp(self, function: Function, inputs: Tensors, tangents: Tensors) -> Pushed:
        """The references' own `forward` on dual numbers."""
        tape, leaves, results = self._traced(function, inputs)
        duals = Duals(tape, moving(leaves, tangents))
        return arrays_of(results), [moved(duals.dual(y), inputs) for y in results]

    def hvp(
        self,
        function: Function,
        inputs: Tensors,
        grads: Tensors,
        tangents: Tensors,
        wanted: Sequence[int],
    ) -> Pulled:
        """The references' own `backward` on dual numbers."""
        tape, leaves, results = self._traced(function, inputs)
        totals = Duals(tape, moving(leaves, tangents)).pull(results, grads)
        found = [totals.get(id(leaves[i])) for i in wanted]
        return arrays_of(results), [None if dx is None else moved(dx, inputs) for dx in found]

    def _traced(
        self, function: Function, inputs: Tensors
    ) -> tuple[Tape, list[Any], tuple[Traced, ...]]:
        """A tape of the calls that the function makes, with its inputs and its outputs."""
        tape = self.tape()
        leaves = [None if x is None else Traced(x, tape) for x in inputs]
        result = function(*leaves)
        results = result if isinstance(result, tuple) else (result,)
        traced = (y if isinstance(y, Traced) else Traced(y, tape) for y in results)
        return tape, leaves, tuple(traced)


def arrays_of(results: Sequence[Traced]) -> tuple[Any, ...]:
    """What was traced."""
    return tuple(y.array for y in results)


def moving(leaves: Sequence[Any], tangents: Tensors) -> dict[int, Dual]:
    """Those that move as dual numbers, by identity."""
    pairs = zip(leaves, tangents, strict=True)
    return {id(x): Dual(widened(x.array), widened(t)) for x, t in pairs if t is not None}


def moved(y: Any, like: Sequence[Array | None]) -> Any:
    """How a result moves, in the dtype of the first floating-point input; `None` of a constant."""
    return None if not isinstance(y, Dual) else rounded(y.full_companion(), like)
