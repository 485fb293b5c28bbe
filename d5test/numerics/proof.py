"""Is the `backward` of a reference the transpose of the derivative of its `forward`, on one case?

<dy, J t> = <backward(dy), t> for directions t, J t by dual numbers. The two may differ by the bars
that `backward` has in float64, which say too how far subgradients reach at ties and kinks; by
rounding in J t, whose spread is measured by moving each input by a unit roundoff; and by rounding
in the sums. What has no bar takes no part.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from d5test.case import Array, Arrays, Case, Operator, Tensor
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import Bounds, double, gradient_bounds
from d5test.numerics.elementary import COMPARISONS, LOGIC, STEPS, TABLE, no_row
from d5test.numerics.ensemble import BY_ELEMENT, MEMBERS, Spread
from d5test.numerics.tracked import Tracked

DIRECTIONS = 4
"""Random ones: in one, a wrong element is hidden as far as others make the tolerance wide."""
UNIT = 2.0**-52

Direction = tuple[Array | None, ...]
"""How each input moves; `None`: not at all, or as it does where it stands first."""


class Dual(Tracked):
    """A value and its derivative in one direction (`companion`); `None` is a constant.

    Its rules are the table of primitives and linearity; they share nothing with the references'
    `backward`.
    """

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
            if ufunc not in TABLE:
                raise no_row(ufunc)
            parts = [
                None if t is None else derivative(*xs, value)
                for derivative, t in zip(TABLE[ufunc].derivatives, tangents, strict=True)
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


def moved_outputs(op: Operator, inputs: Sequence[Any], direction: Sequence[Any]) -> list[Array]:
    """J t: how each output moves, by dual numbers, while the inputs move in one direction."""
    duals: dict[int, Any] = {}
    for x, t in zip(inputs, direction, strict=True):
        if t is not None:
            duals.setdefault(id(x), Dual(x, t))
    with np.errstate(all="ignore"):
        outputs = op(*(duals.get(id(x), x) for x in inputs))
    return [y.full_companion() if isinstance(y, Dual) else np.zeros(np.shape(y)) for y in outputs]


class WrongReference(Exception):
    """A reference whose `backward` contradicts its `forward`: nothing is said of the framework."""


@dataclass(frozen=True)
class Difference:
    """The two sides in one direction.

    forward   <dy, J t>
    backward  <backward(dy), t>
    size      the sum of the magnitudes of the terms of both
    bars      how far the bars of `backward`, and subgradients, let them differ
    rounding  how far rounding in the sums and in J t does
    """

    forward: float
    backward: float
    size: float
    bars: float
    rounding: float

    @property
    def error(self) -> float:
        """How far they differ."""
        return abs(self.forward - self.backward)

    @property
    def excess(self) -> float:
        """By how much that is more than it may be."""
        return self.error - self.bars - self.rounding


def prove_backward(case: Case, arrays: Arrays, grads: Arrays) -> None:
    """Raise `WrongReference` if the reference contradicts itself on `arrays` and `grads`.

    `arrays` are the inputs of `case.op`, `grads` an upstream gradient for each output or `None`.
    """
    proof = Proof(case, arrays, grads)
    proof.require_shapes()
    for direction in proof.directions():
        if proof.difference(direction).excess > 0:
            raise WrongReference(proof.accusation(direction))


class Proof:
    """Both sides of the equation, of one operator on one set of data."""

    def __init__(self, case: Case, arrays: Arrays, grads: Arrays) -> None:
        self.case, self.op = case, case.op
        self.arithmetic = classes("float64")[0]
        self.inputs, self.grads = double(arrays), double(grads)
        with np.errstate(all="ignore"):
            outputs = self.op(*self.inputs)
            self.gradients = self.op.vjp(self.grads, self.inputs, outputs)

    @cached_property
    def bounds(self) -> Bounds:
        """Of each gradient in float64."""
        return gradient_bounds(self.op, self.inputs, self.grads, self.arithmetic)

    def require_shapes(self) -> None:
        """Each gradient has the shape of its input."""
        for i, (x, g) in enumerate(zip(self.inputs, self.gradients, strict=True)):
            if g is not None and np.shape(g) != x.shape:
                raise WrongReference(
                    self._message(f"gradient of input {i} has the shape", np.shape(g), x.shape)
                )

    def directions(self) -> Iterator[Direction]:
        """Random ones, of the elements that can be judged."""
        for number in range(DIRECTIONS):
            yield tuple(
                self._direction(i, self.case.seed + number) if i == self._first(i) else None
                for i in range(len(self.inputs))
            )

    def _first(self, i: int) -> int:
        """The first position of an input: one that is given twice moves once."""
        return next(j for j, x in enumerate(self.inputs) if x is self.inputs[i])

    def _direction(self, i: int, seed: int) -> Array | None:
        x = self.inputs[i]
        bounds = [b for y, b in zip(self.inputs, self.bounds, strict=True) if y is x]
        judged = [b.judged for b in bounds if b is not None and b.storage is not None]
        if len(judged) < len(bounds):
            return None
        t = Tensor(x.shape, "float64").array(seed, 3000 + i)
        return np.where(np.all(judged, axis=0), t, 0.0)

    def difference(self, direction: Direction) -> Difference:
        """Of the two sides in one direction."""
        forward, size = self._rise(self.inputs, direction)
        backward, bars = 0.0, 0.0
        terms = 1 + sum(dy.size for dy in self.grads if dy is not None)
        for i, (g, bound) in enumerate(zip(self.gradients, self.bounds, strict=True)):
            t = direction[self._first(i)]
            if t is None or bound is None:
                continue
            moves = t != 0
            products = g[moves] * t[moves]
            backward += float(np.sum(products))
            size += float(np.sum(np.abs(products)))
            apart = bound.bar + np.abs(bound.value - g)  # at a tie the value is between both sides
            bars += float(np.sum(np.abs(t[moves]) * apart[moves]))
            terms += products.size
        rounding = self.arithmetic.sum_error(terms) * size
        difference = Difference(forward, backward, size, bars, rounding)
        if difference.excess <= 0:
            return difference
        spread = Spread(forward)
        for member in range(MEMBERS):
            spread.add(self._rise(self._moved(member), direction)[0])
        return replace(difference, rounding=rounding + BY_ELEMENT * float(spread.deviation))

    def _rise(self, inputs: Sequence[Any], direction: Direction) -> tuple[float, float]:
        """<dy, J t> and the sum of the magnitudes of its terms."""
        moved = moved_outputs(self.op, inputs, direction)
        with np.errstate(all="ignore"):
            terms = [dy * t for dy, t in zip(self.grads, moved, strict=False) if dy is not None]
        return sum(float(np.sum(a)) for a in terms), sum(float(np.sum(np.abs(a))) for a in terms)

    def _moved(self, member: int) -> tuple[Any, ...]:
        """The inputs, each element by a unit roundoff up or down."""
        moved: dict[int, Any] = {}
        for i, x in enumerate(self.inputs):
            if x is not None and x.dtype.kind == "f" and id(x) not in moved:
                signs = np.sign(Tensor(x.shape, "float64").array(member, 4000 + i))
                moved[id(x)] = x * (1 + UNIT * signs)
        return tuple(moved.get(id(x), x) for x in self.inputs)

    def accusation(self, direction: Direction) -> str:
        """The element that contradicts most, found by halving the direction."""
        while (halves := _halves(direction)) is not None:
            direction = max(halves, key=lambda half: self.difference(half).excess)
        last = self.difference(direction)
        i, t = next((i, t) for i, t in enumerate(direction) if t is not None and np.any(t))
        at = tuple(int(k) for k in np.argwhere(t)[0])
        step = float(t[at])
        doubt = (last.bars + last.rounding) / abs(step)
        return self._message(
            f"gradient of input {i} at {list(at)} is",
            repr(last.backward / step),
            f"{last.forward / step!r}, give or take {doubt:.3g}",
        )

    def _message(self, what: str, backward: object, forward: object) -> str:
        name = self.op.name
        return (
            f"{self.op!r}: the reference contradicts itself, and no framework is judged by it\n"
            f"\n  the {what}"
            f"\n    {backward} by {name}.backward"
            f"\n    {forward} by {name}.forward, whose derivative dual numbers give"
            f"\n  case  {self.case!r}"
            f"\n\nCorrect the one that is wrong."
        )


def _halves(direction: Direction) -> tuple[Direction, Direction] | None:
    """A direction in two, by the places where it is not zero; `None` of a single one."""
    places = [(i, k) for i, t in enumerate(direction) if t is not None for k in np.flatnonzero(t)]
    if len(places) < 2:
        return None
    middle = len(places) // 2
    return _without(direction, places[middle:]), _without(direction, places[:middle])


def _without(direction: Direction, places: Sequence[tuple[int, Any]]) -> Direction:
    """A direction in which some elements, by input and flat index, do not move."""
    rest: list[Any] = [None if t is None else t.copy() for t in direction]
    for i, k in places:
        np.put(rest[i], k, 0.0)
    return tuple(rest)
