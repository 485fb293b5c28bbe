"""An operator's row made ready to be called: its view of the operator, its mode, its aliases.

NumPy and the framework only: this runs where the framework lives.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from d5test.backends.base import Backend, Row
from d5test.worker.wire import Bits

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperatorView) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[str, bytes]:
        return self.name, pickle.dumps(self.attributes)

    def __repr__(self) -> str:
        given = (f"{k}={v!r}" for k, v in self.attributes.items() if v is not None)
        return f"{self.name}({', '.join(given)})"


class BadRow(Exception):
    """A row returned what no row may return."""


class Bound:
    """The row of an operator, ready to be called on tensors, in the backend's mode.

    `function` takes any inputs; `ready` makes the same for some, with nothing of ours on the way.
    """

    def __init__(self, backend: Backend, row: Row, op: OperatorView) -> None:
        def call(*inputs: Any) -> Any:
            return row.call(op, *inputs)

        self.op = op
        self.row = row
        self.code = call.__code__
        self.function = backend.compile(call)
        self.compiled = self.function is not call
        self._folded: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def ready(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The function for inputs like these (see `Row.plan`). A compiled one is so as it is."""
        return self.function if self.compiled else self.row.plan(self.op, inputs)

    def folded(self, function: Callable[..., Any], places: tuple[int, ...]) -> Callable[..., Any]:
        """A function of the distinct inputs only; `places[i]` is where input i is among them.

        A tensor that is passed twice has one gradient, the sum over its places. The same function
        folded again is the same object, by which a compiled mode knows it.
        """
        if places == tuple(range(len(places))):
            return function
        if (function, places) not in self._folded:
            self._folded[function, places] = lambda *distinct: function(
                *(distinct[p] for p in places)
            )
        return self._folded[function, places]


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
