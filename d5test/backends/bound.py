"""An operator's row made ready to be called: its view of the operator, its mode, its aliases.

NumPy and the framework only: this runs where the framework lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from d5test.backends.base import Backend, Row, WithoutAttributes
from d5test.backends.wire import Bits

Given = tuple[Bits | None, ...]
FLOATING = ("float", "bfloat")


class OperatorView:
    """An operator as a row sees it: its name, and its attributes by their ONNX names."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        self.name = name
        self.attributes = {
            key: value.array if isinstance(value, Bits) else value
            for key, value in attributes.items()
        }
        self.__dict__.update(self.attributes)

    def __repr__(self) -> str:
        given = (f"{k}={v!r}" for k, v in self.attributes.items() if v is not None)
        return f"{self.name}({', '.join(given)})"


class BadRow(Exception):
    """A row returned what no row may return."""


class Bound:
    """The row of an operator, ready to be called on tensors, in the backend's mode.

    `function` takes the inputs; `callee` is the same with nothing of ours on the way.
    """

    def __init__(self, backend: Backend, row: Row, op: OperatorView) -> None:
        def call(*inputs: Any) -> Any:
            return row.call(op, *inputs)

        self.op = op
        self.row = row
        self.code = call.__code__
        self.function = backend.compile(call)
        self.callee: Callable[..., Any] = self.function
        if self.function is call:
            plain = row.call.function if isinstance(row.call, WithoutAttributes) else None
            self.callee = plain or partial(row.call, op)
        self._folded: dict[tuple[int, ...], Callable[..., Any]] = {}

    def folded(self, places: tuple[int, ...]) -> Callable[..., Any]:
        """The function of the distinct inputs only; `places[i]` is where input i is among them.

        A tensor that is passed twice has one gradient, the sum over its places.
        """
        if places == tuple(range(len(places))):
            return self.function
        if places not in self._folded:
            self._folded[places] = lambda *distinct: self.function(*(distinct[p] for p in places))
        return self._folded[places]


class Aliases:
    """Which inputs are the same tensor: `same_as[i]` is the earlier position that input i is."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aliases) and self.roots == other.roots

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, same_as: Sequence[int | None] | None, count: int) -> None:
        self.roots: list[int] = []
        for i, earlier in enumerate(same_as or [None] * count):
            self.roots.append(i if earlier is None else self.roots[earlier])
        self.distinct = sorted(set(self.roots))
        self.places = tuple(self.distinct.index(root) for root in self.roots)

    def wanted(self, inputs: Given, wanted: Sequence[int] | None) -> list[int]:
        """The distinct inputs whose gradients are wanted; `None`: all floating-point ones."""
        if wanted is None:
            wanted = [
                i for i, x in enumerate(inputs) if x is not None and x.dtype.startswith(FLOATING)
            ]
        return sorted({self.roots[i] for i in wanted})
