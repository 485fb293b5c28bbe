"""Dual numbers: reference code run on them gives derivatives in one direction.

Rules are the table of primitives and linearity; they share nothing with the `backward` of the
references. A value and its derivative may themselves be tracked arrays: with error bars, a
derivative has the bar of its own formula, the chain rule on the reference; with dual numbers, a
derivative of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d5test.case import Array, Operator
from d5test.numerics.elementary import COMPARISONS, LOGIC, STEPS, TABLE, no_row
from d5test.numerics.functions import normal_axes
from d5test.numerics.tracked import Tracked, Values, as_array, times, zeros_of


class Dual(Tracked):
    """A value and its derivative in one direction (`companion`); `None` is a constant."""

    __slots__ = ()

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        xs = [_value(a) for a in arguments]
        tangents = [a.companion if isinstance(a, Dual) else None for a in arguments]
        value = ufunc(*xs)
        if ufunc in COMPARISONS or ufunc in LOGIC:
            return self.like(value) if isinstance(value, Tracked) else value
        if not isinstance(value, Tracked):
            value = np.asarray(value)
        if ufunc in STEPS or ufunc is np.sign or all(t is None for t in tangents):
            return self.like(value)
        if ufunc in (np.maximum, np.minimum):
            first = xs[0] >= xs[1] if ufunc is np.maximum else xs[0] <= xs[1]
            tangent = np.where(first, *(np.zeros(()) if t is None else t for t in tangents))
        else:
            if ufunc not in TABLE:
                raise no_row(ufunc)
            moved = [
                times(derivative(*xs, value), t)
                for derivative, t in zip(TABLE[ufunc].derivatives, tangents, strict=True)
                if t is not None
            ]
            tangent = sum(moved[1:], moved[0])
        return self.like(value, np.broadcast_to(tangent, value.shape).copy())  # may be written to

    def contract(
        self, function: Callable[..., Any], operands: Sequence[Any], sizes: tuple[int, ...]
    ) -> Any:
        xs = [self.lift(x) for x in operands]
        values = [x.value for x in xs]
        tangents = [
            function(*values[:i], x.companion, *values[i + 1 :])
            for i, x in enumerate(xs)
            if x.companion is not None
        ]
        tangent = sum(tangents[1:], tangents[0]) if tangents else None
        return self.like(
            as_array(function(*values)), None if tangent is None else as_array(tangent)
        )

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        return self.move(lambda a: as_array(a.sum(axis=axis, keepdims=keepdims)))

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        """The derivative of the element that is taken; at a tie of plain numbers their mean."""
        function = np.max if sign > 0 else np.min
        value = as_array(function(self.value, axis=axis, keepdims=keepdims))
        if self.companion is None:
            return self.like(value)
        if isinstance(self.value, Tracked):
            return self.like(value, self._of_extremum(sign, axis).reshape(value.shape))
        first = self.value == function(self.value, axis=axis, keepdims=True)
        share = first / np.sum(first, axis=axis, keepdims=True)
        return self.like(value, np.sum(share * self.companion, axis=axis, keepdims=keepdims))

    def _of_extremum(self, sign: int, axis: Any) -> Any:
        """The derivative of the element that is taken, which may be in doubt."""
        axes = normal_axes(self.ndim, axis)
        rest = tuple(a for a in range(self.ndim) if a not in axes)
        shape = tuple(self.shape[a] for a in rest)
        rows = self.transpose((*rest, *axes)).reshape((*shape, -1))
        index = rows.argument(sign, -1, keepdims=True)
        return np.take_along_axis(rows.companion, index, -1)

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        a, b, which = self.lift(chosen), self.lift(other), _value(condition)
        value = np.where(which, a.value, b.value)
        if a.companion is None and b.companion is None:
            return self.like(value)
        return self.like(value, np.where(which, a.full_companion(), b.full_companion()))

    def scatter_add(self, target: Any, index: Any, addend: Any) -> None:
        np.add.at(target.value, index, addend.value)
        if addend.companion is not None:
            target.companion = target.full_companion()
            np.add.at(target.companion, index, addend.companion)

    def accumulated(self) -> Any:
        return self.move(np.add.accumulate)

    # values that are tracked themselves

    def lift(self, other: Any) -> Any:
        return other if isinstance(other, Dual) else self.like(as_array(other))

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return self.like(zeros_of(self.value, shape), zeros_of(self.value, shape))

    def full_companion(self) -> Values:
        return zeros_of(self.value, self.shape) if self.companion is None else self.companion

    def __getitem__(self, key: Any) -> Any:
        return self.move(lambda elements: as_array(elements[key]))


def _value(x: Any) -> Any:
    """What a function of NumPy gets; numbers of the formula as they are."""
    return x.value if isinstance(x, Dual) else x


def moving(inputs: Sequence[Any], direction: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs as dual numbers; arrays without a place in `direction` are constants.

    An input that is given twice, as one object, moves once.
    """
    duals: dict[int, Any] = {}
    for x, t in zip(inputs, direction, strict=True):
        if t is not None:
            duals.setdefault(id(x), Dual(x, t))
    return tuple(duals.get(id(x), Dual(x) if isinstance(x, Tracked) else x) for x in inputs)


def derivative(y: Any) -> Any:
    """How a result moves; zeros of a constant."""
    return y.full_companion() if isinstance(y, Dual) else np.zeros(np.shape(y))


def moved_outputs(op: Operator, inputs: Sequence[Any], direction: Sequence[Any]) -> list[Array]:
    """J t: how each output moves, by dual numbers, while the inputs move in one direction."""
    with np.errstate(all="ignore"):
        return [derivative(y) for y in op(*moving(inputs, direction))]
