"""Is the `backward` of a reference the transpose of the derivative of its `forward`, on one case?

<dy, J t> = <backward(dy), t> for directions t, J t by dual numbers. The two may differ by the bars
that `backward` has in float64, which say too how far subgradients reach at ties and kinks; by
rounding in J t, whose spread is measured by moving each input by a unit roundoff; and by rounding
in the sums. What has no bar takes no part: there the gradient has to lie between the slopes on
both sides of its element.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from d5test.case import Array, Arrays, Case, Tensor
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import Bounds, double, gradient_bounds
from d5test.numerics.derivatives import by_forward, slope_bounds
from d5test.numerics.dual import moved_outputs
from d5test.numerics.ensemble import BY_ELEMENT, MEMBERS, Spread
from d5test.numerics.sampled import Sampled

DIRECTIONS = 4
"""Random ones: in one, a wrong element is hidden as far as others make the tolerance wide."""
UNIT = 2.0**-52
UNSURE = 8
"""Elements without a bar that are looked at, of each input."""
ASIDE, APART = 2.0**-26, 3 * 2.0**-10
"""How far beside an element its slopes are taken, and by which share of their mean size it may be
off."""
TIES = 2.0**-20
"""How far to each side elements are spread that equal another."""

Direction = tuple[Array | None, ...]
"""How each input moves; `None`: not at all, or as it does where it stands first."""


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
    if isinstance(case.op, Sampled):  # a framework differentiates it, and no dual number can
        return
    proof = Proof(case, arrays, grads)
    proof.require_shapes()
    proof.require_subgradients()
    for direction in proof.directions():
        if proof.difference(direction).excess > 0:
            raise WrongReference(proof.accusation(direction))


def prove_slopes(case: Case, arrays: Arrays, grads: Arrays, direction: Direction) -> None:
    """Raise `WrongReference` if `backward` does not move as second dual numbers of `forward` say.

    Both have bars in float64, which hold every subgradient of a kink; what has none takes no part.
    """
    arithmetic = classes("float64")[0]
    data = double(arrays), double(grads), double(direction)
    pairs = zip(
        slope_bounds(case.op, *data, arithmetic),
        by_forward(case.op, *data, arithmetic),
        strict=True,
    )
    for i, (backward, forward) in enumerate(pairs):
        twice = sum(x is arrays[i] for x in arrays) > 1  # what flows through each place is added
        if backward is None or forward is None or twice:
            continue
        error = np.absolute(backward.value - forward.value)
        wrong = backward.judged & forward.judged & (error > backward.bar + forward.bar)
        if wrong.any():
            at = tuple(int(k) for k in np.argwhere(wrong)[0])
            op = case.op
            raise WrongReference(
                f"{op!r}: the reference contradicts itself, and no framework is judged by it\n"
                f"\n  the gradient of input {i} at {list(at)} moves by"
                f"\n    {float(backward.value[at])!r} as {op.name}.backward moves"
                f"\n    {float(forward.value[at])!r} by the second derivative of {op.name}.forward"
                f"\n  case  {case!r}"
            )


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

    def require_subgradients(self) -> None:
        """A gradient without a bar lies between the slopes beside it.

        Where `forward` has no derivative by its own chain rule, as a norm at zero, nothing is due.
        """
        for i, (x, g, bound) in enumerate(
            zip(self.inputs, self.gradients, self.bounds, strict=True)
        ):
            if (
                g is None
                or bound is None
                or bound.all_judged
                or sum(x is y for y in self.inputs) > 1
            ):
                continue
            places = np.argwhere(~np.broadcast_to(bound.judged, x.shape) & np.isfinite(x))
            for place in places[:: max(1, len(places) // UNSURE)][:UNSURE]:
                self._require_subgradient(i, tuple(map(int, place)), g)

    def _require_subgradient(self, i: int, at: tuple[int, ...], g: Array) -> None:
        x, scale = self.inputs[i], max(1.0, abs(self.inputs[i][at]))
        beside = [_with(x, at, x[at] + side * scale) for side in (-ASIDE, 0.0, ASIDE)]
        least, most, margin = self._slopes(i, at, beside)
        if not np.isfinite(margin) or least - margin <= g[at] <= most + margin:
            return
        least, most, margin = self._slopes(i, at, (*beside, *_ranked(x, at, scale)))
        if np.isfinite(margin) and not least - margin <= g[at] <= most + margin:
            between = f"between {least!r} and {most!r}"
            raise WrongReference(
                self._message(
                    f"gradient of input {i} at {list(at)} is", repr(float(g[at])), between
                )
            )

    def _slopes(
        self, i: int, at: tuple[int, ...], variants: Iterable[Array]
    ) -> tuple[float, float, float]:
        """The least and the largest slope along one element of an input, and their doubt: NaN
        where one of them is.

        `variants` stand in place of the input, one at a time.
        """
        one = _with(np.zeros_like(self.inputs[i]), at, 1.0)
        direction = tuple(one if k == i else None for k in range(len(self.inputs)))
        found = [
            self._rise((*self.inputs[:i], x, *self.inputs[i + 1 :]), direction) for x in variants
        ]
        rises, sizes = zip(*found, strict=True)
        return min(rises), max(rises), APART * float(np.mean(sizes))

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
            # at a tie the value is between both sides
            apart = bound.bar[moves] + np.abs(bound.value[moves] - g[moves])
            bars += float(np.sum(np.abs(t[moves]) * apart))
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


def _with(x: Array, at: tuple[int, ...], value: float) -> Array:
    """A copy in which one element is another."""
    copy = x.copy()
    copy[at] = value
    return copy


def _ranked(x: Array, at: tuple[int, ...], scale: float) -> Iterator[Array]:
    """Elements that equal the one at `at` side by side, and that one in each gap between them.

    Where three are equal, a gradient may be the middle one's, which no step away from both shows.
    """
    equal = np.abs(x - x[at]) <= ASIDE * scale
    equal[at] = False
    count = int(np.count_nonzero(equal))
    step = TIES * scale / max(1, count)
    apart = x.copy()
    apart[equal] = x[at] + step * (2 * np.arange(count) - count + 1)
    return (_with(apart, at, x[at] + step * (2 * rank - count)) for rank in range(count + 1))


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
