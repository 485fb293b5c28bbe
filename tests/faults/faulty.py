"""An operator that is wrong in what it returns or in how it understands its attributes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np

from d5test.case import Case, Operator
from d5test.numerics.bounds import lower_precision

Arrays = tuple[Any, ...]
Change = Callable[[Any, Arrays], Any]
"""What becomes of one result; the inputs (or the upstream gradients) are given too."""


@dataclass(frozen=True)
class Faulty:
    """As an operator to the row of a backend: `forward` and `vjp` as they are given."""

    forward: Callable[..., Arrays]
    backward: Callable[..., Arrays]
    differentiable: bool
    typed: bool

    def __call__(self, *inputs: Any) -> Arrays:
        return self.forward(*inputs)

    def vjp(self, grads: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
        return self.backward(grads, inputs, outputs)


Make = Callable[..., Any]
"""Attributes in, an operator out: a class of operators, or what makes a `Faulty`."""


def with_results(cls: type[Operator], part: str, k: int, change: Change) -> Make:
    """The operator with its result `k` changed: an output, or in the `backward` a gradient."""

    def make(**attributes: Any) -> Faulty:
        op = cls(**attributes)

        def forward(*inputs: Any) -> Arrays:
            return _changed(op(*inputs), k, change, inputs)

        def backward(grads: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
            return _changed(op.vjp(grads, inputs, outputs), k, change, grads)

        if part == "forward":
            return Faulty(forward, op.vjp, op.differentiable, op.typed)
        return Faulty(op.__call__, backward, op.differentiable, op.typed)

    return make


def _changed(results: Arrays, k: int, change: Change, given: Arrays) -> Arrays:
    return tuple(
        change(np.asarray(y), given) if i == k and y is not None else y
        for i, y in enumerate(results)
    )


def one_element(share: float) -> Change:
    """One element, at `share` of all, 1% larger; a whole number one larger."""

    def change(y: Any, given: Arrays) -> Any:
        y = y.copy()
        if y.size:
            i = int(share * (y.size - 1))
            y.flat[i] = y.flat[i] * y.dtype.type(1.01) if y.dtype.kind == "f" else y.flat[i] + 1
        return y

    return change


def zeros(y: Any, given: Arrays) -> Any:
    return np.zeros_like(y)


def ones(y: Any, given: Arrays) -> Any:
    return np.ones_like(y)


def mean(y: Any, given: Arrays) -> Any:
    return np.full_like(y, y.mean()) if y.size and y.dtype.kind == "f" else y


def given_back(y: Any, given: Arrays) -> Any:
    """The first input of the same shape, or for a gradient the upstream one."""
    fitting = (x for x in given if x is not None and x.shape == y.shape and x.dtype == y.dtype)
    return next(fitting, y)


CONSTANTS: tuple[tuple[str, str, Change], ...] = (
    ("zero", "all zero", zeros),
    ("constant", "all one", ones),
    ("constant", "its mean everywhere", mean),
    ("constant", "what was given", given_back),
    ("element", "its first element off by 1%", one_element(0.0)),
    ("element", "an element in the middle off by 1%", one_element(0.5)),
    ("element", "its last element off by 1%", one_element(1.0)),
)
"""Kind, words and change."""


def in_lower_precision(cls: type[Operator], part: str) -> Make:
    """The operator computed in the next lower precision."""

    def make(**attributes: Any) -> Faulty:
        op = cls(**attributes)

        def forward(*inputs: Any) -> Arrays:
            return lower_precision(op, inputs, None, _dtype(inputs))

        def backward(grads: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
            return lower_precision(op, inputs, grads, _dtype(inputs))

        if part == "forward":
            return Faulty(forward, op.vjp, op.differentiable, op.typed)
        return Faulty(op.__call__, backward, op.differentiable, op.typed)

    return make


def _dtype(inputs: Arrays) -> str:
    return next(x.dtype.name for x in inputs if x is not None and x.dtype.kind == "f")


def with_upstream(cls: type[Operator], change: Callable[[Any], Any]) -> Make:
    """The operator whose gradient sees another upstream gradient."""

    def make(**attributes: Any) -> Faulty:
        op = cls(**attributes)

        def backward(grads: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
            other = tuple(None if dy is None else change(dy) for dy in grads)
            return op.vjp(other, inputs, outputs)

        return Faulty(op.__call__, backward, op.differentiable, op.typed)

    return make


def with_attribute(
    cls: type[Operator], part: str, name: str, change: Callable[[Any], Any]
) -> Make:
    """The operator that takes one attribute for another, everywhere or in its gradient only."""

    def make(**attributes: Any) -> Faulty:
        op = cls(**attributes)
        other = cls(**{**attributes, name: change(attributes[name])})
        forward = op.__call__ if part == "backward" else other.__call__
        return Faulty(forward, other.vjp, op.differentiable, op.typed)

    return make


def attribute_changes(
    cls: type[Operator], cases: Sequence[Case]
) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    """Name, words and change: each attribute ignored, and taken for another value."""
    for field in fields(cls):
        drawn = list(dict.fromkeys(getattr(case.op, field.name) for case in cases))
        if field.default is not MISSING and any(value != field.default for value in drawn):
            yield field.name, f"ignored, always {field.default!r}", _always(field.default)
        kinds = {type(value) for value in drawn if value is not None}
        if kinds == {int} and set(drawn) <= {0, 1, None}:
            yield field.name, "0 for 1 and 1 for 0", lambda v: None if v is None else 1 - v
        elif kinds == {int}:
            yield field.name, "one more", lambda v: None if v is None else v + 1
        elif kinds == {float}:
            yield field.name, "half as much again", lambda v: None if v is None else 1.5 * v
        elif kinds == {tuple}:
            yield field.name, "in reverse order", lambda v: v and v[::-1]
            if all(isinstance(x, int) for value in drawn for x in value or ()):
                yield field.name, "the first one more", lambda v: v and (v[0] + 1, *v[1:])
        elif kinds == {str} and field.default is not MISSING:
            following = dict(zip(drawn, [*drawn[1:], drawn[0]], strict=True))
            yield field.name, "another one", lambda v, following=following: following.get(v, v)


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value
