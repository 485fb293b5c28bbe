"""An operator's row made ready to be called: its view of the operator, its mode.

NumPy and the framework only: this runs where the framework lives.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from d5test.backends.base import Always, Backend, Row, planned
from d5test.worker.wire import Bits

AGAIN = 8
"""How often a difference is looked at again before a row is accused of it."""


class OperatorView:
    """An operator as a row sees it: its name, and its attributes by their ONNX names."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        self.name = name
        self.attributes = {
            key: value.array if isinstance(value, Bits) else value
            for key, value in attributes.items()
        }
        self.__dict__.update(self.attributes)

    def __getattr__(self, name: str) -> Any:
        """What is asked of an operator and is no attribute of it, as by a row that is called."""
        if name.startswith("__"):
            raise AttributeError(name)
        known = self.__dict__
        has = ", ".join(known.get("attributes", {})) or "none"
        raise AttributeError(
            f"{known.get('name')} has no attribute {name!r} (it has: {has}); a row is called with "
            "the operator first, and then its tensors"
        )

    def with_(self, **attributes: Any) -> OperatorView:
        """The same operator with other attributes."""
        for name in attributes:
            getattr(self, name)  # says which there are
        return OperatorView(self.name, {**self.attributes, **attributes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperatorView) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[str, bytes]:
        return self.name, pickle.dumps(self.attributes)

    def __repr__(self) -> str:
        attributes = (f"{k}={v!r}" for k, v in self.attributes.items() if v is not None)
        return f"{self.name}({', '.join(attributes)})"


class BadRow(Exception):
    """A row returned what no row may return."""


class Misfit(Exception):
    """An upstream gradient has not the shape of its output."""


class Bound:
    """The row of an operator, ready to be called on tensors, in the backend's mode.

    `function` takes any inputs; `ready` makes the same for some, with nothing of ours on the way.
    """

    def __init__(self, backend: Backend, row: Row, op: OperatorView) -> None:
        def call(*inputs: Any) -> Any:
            return row.call(op, *inputs)

        call.values = row.values  # type: ignore[attr-defined]  # for whoever compiles it
        self.backend = backend
        self.op = op
        self.row = row
        self.code = call.__code__
        self.function = backend.compile(call)
        self.compiled = self.function is not call
        self._folded: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def ready(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The function for inputs like these (see `Row.plan`). A compiled one is so as it is."""
        return self.function if self.compiled else self.row.plan(self.op, inputs)

    def values_read(
        self, inputs: Sequence[Any], others: Sequence[Any | None], get: Callable[[Any], Bits]
    ) -> int | None:
        """The position of an input whose values the plan reads though the row does not say so.

        `others` has for some inputs a tensor of the same kind with other values. A plan made with
        it must be good for the input itself, bit for bit, unless the row lists it in `values`.
        Sums by atomic additions differ from one call to the next: what differs must differ again,
        in the same way.
        """
        call = self.row.call
        if self.compiled or not isinstance(call, planned) or isinstance(call.plan, Always):
            return None
        expected = self._results(inputs, inputs, get)
        for i, other in enumerate(others):
            if other is None or i in self.row.values:
                continue
            like = [*inputs[:i], other, *inputs[i + 1 :]]
            try:
                results = self._results(like, inputs, get)
            except Exception:  # noqa: BLE001 (such values make no plan: it has read them)
                return i
            if not _same_bits(results, expected) and all(
                _same_bits(self._results(inputs, inputs, get), expected)
                and _same_bits(self._results(like, inputs, get), results)
                for _ in range(AGAIN)
            ):
                return i
        return None

    def _results(
        self, like: Sequence[Any], inputs: Sequence[Any], get: Callable[[Any], Bits]
    ) -> list[Bits]:
        """What a plan for inputs `like` these makes of `inputs`."""
        result = self.row.plan(self.op, like)(*inputs)
        return [get(y) for y in (result if isinstance(result, (tuple, list)) else (result,))]

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


def _same_bits(one: Sequence[Bits], other: Sequence[Bits]) -> bool:
    return len(one) == len(other) and all(a.same(b) for a, b in zip(one, other, strict=True))
