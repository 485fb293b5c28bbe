"""Forward-mode automatic differentiation, to prove the `backward` of each reference.

A dual number carries a value and its derivative in one direction. Its rules are the table of
primitives and linearity; they share nothing with the references' `backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from d5test.numerics.elementary import COMPARISONS, LOGIC, STEPS, TABLE
from d5test.numerics.tracked import Tracked


class Dual(Tracked):
    """A value and its tangent (`companion`); `None` is a constant."""

    __slots__ = ()

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        xs = [a.value if isinstance(a, Tracked) else np.asarray(a) for a in arguments]
        tangents = [a.companion if isinstance(a, Tracked) else None for a in arguments]
        value = ufunc(*xs)
        if ufunc in COMPARISONS or ufunc in LOGIC:
            return value
        if ufunc in STEPS or ufunc is np.sign:
            return self.like(value)
        if ufunc in (np.maximum, np.minimum):
            first = xs[0] >= xs[1] if ufunc is np.maximum else xs[0] <= xs[1]
            parts: Sequence[Any] = (first, ~first)
        else:
            row = TABLE.get(ufunc)
            if row is None:
                raise TypeError(
                    f"a reference may not call numpy.{ufunc.__name__}: it has no row in "
                    "d5test/numerics/elementary.py; use functions that docs/extending.md lists"
                )
            parts = [
                None if t is None else derivative(*xs, value)
                for derivative, t in zip(row.derivatives, tangents, strict=True)
            ]
        moved = [p * t for p, t in zip(parts, tangents, strict=True) if t is not None]
        tangent = sum(moved[1:], moved[0]) if moved else None
        return self.like(value, None if tangent is None else np.broadcast_to(tangent, value.shape))

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
        return self.like(np.asarray(function(*values)), tangent)

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        return self.move(lambda a: np.asarray(np.sum(a, axis=axis, keepdims=keepdims)))

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        function = np.max if sign > 0 else np.min
        value = function(self.value, axis=axis, keepdims=True)
        first = self.value == value
        share = first / np.sum(first, axis=axis, keepdims=True)
        tangent = np.sum(share * self.full_companion(), axis=axis, keepdims=keepdims)
        return self.like(
            np.asarray(function(self.value, axis=axis, keepdims=keepdims)), np.asarray(tangent)
        )

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        a, b = self.lift(chosen), self.lift(other)
        return self.like(
            np.where(condition, a.value, b.value),
            np.where(condition, a.full_companion(), b.full_companion()),
        )
