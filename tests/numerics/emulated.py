"""Honest arithmetic of each class, on which the references run as they run on plain arrays.

Every primitive is rounded as its class has it, and sums run in an order and in stages of choice.
Each element carries a number (its companion), by which what was computed is differentiated again:
the derivative of every primitive, rounded as well, as a framework does it that composes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d5test.case import Operator, dtype_of
from d5test.numerics.elementary import COMPARISONS, LOGIC, STEPS, TABLE
from d5test.numerics.functions import normal_axes
from d5test.numerics.tracked import Tracked
from d5test.values import finfo

Array = Any
Rounding = Callable[[Array], Array]


def forward(terms: Array, rounding: Rounding) -> Array:
    """The sum along the last axis, one term after the other."""
    total = terms[..., 0]
    for i in range(1, terms.shape[-1]):
        total = rounding(total + terms[..., i])
    return total


def reverse(terms: Array, rounding: Rounding) -> Array:
    """The last term first."""
    return forward(terms[..., ::-1], rounding)


def pairwise(terms: Array, rounding: Rounding) -> Array:
    """The sum of both halves' sums."""
    n = terms.shape[-1]
    if n == 1:
        return terms[..., 0]
    halves = (pairwise(t, rounding) for t in (terms[..., : n // 2], terms[..., n // 2 :]))
    return rounding(sum(halves))


def blocked(terms: Array, rounding: Rounding) -> Array:
    """The sum of the sums of three terms each."""
    blocks = range(0, terms.shape[-1], 3)
    sums = [forward(terms[..., i : i + 3], rounding) for i in blocks]
    return forward(np.stack(sums, -1), rounding)


@dataclass(frozen=True)
class Machine:
    """How to compute.

    name      the arithmetic class: F, P or S, or "" for float32 and float64
    order     of sums: how the terms along the last axis are added
    products  a product is rounded as a primitive before it is summed
    staged    a sum over several axes runs axis after axis, and rounds in between; one of products
              over one axis in two halves
    """

    dtype: str
    name: str
    order: Callable[[Array, Rounding], Array] = forward
    products: bool = False
    staged: bool = False
    steps: list[Step] = field(default_factory=list, compare=False)
    underflows: list[np.ufunc] = field(default_factory=list, compare=False)
    """Primitives of a normal number with a derivative that is none."""

    def stored(self, x: Array) -> Array:
        """x as an input or an output."""
        return np.asarray(x, self.wide).astype(dtype_of(self.dtype)).astype(self.wide)

    def primitive(self, x: Array) -> Array:
        """x as a primitive leaves it."""
        return np.asarray(x, self.wide) if self.name in ("F", "") else self.stored(x)

    def addition(self, x: Array) -> Array:
        """x as an addition in a sum leaves it."""
        return self.stored(x) if self.name == "S" else np.asarray(x, self.wide)

    @property
    def wide(self) -> Any:
        """The dtype in which the processor computes."""
        return np.float64 if self.dtype == "float64" else np.float32

    @property
    def tiny(self) -> float:
        """The smallest normal number of the dtype in which primitives are stored."""
        return float(finfo(self.wide if self.name in ("F", "") else self.dtype).smallest_normal)

    def total(self, terms: Array, axes: int, *, products: bool = False) -> Array:
        """The sum over the last `axes` axes of `terms`; `products` are not yet rounded."""
        terms = np.asarray(terms, self.wide)
        if products and (self.products or self.name == "S"):
            terms = self.primitive(terms)
        flat = terms.reshape(*terms.shape[: terms.ndim - axes], -1)
        if flat.shape[-1] == 0:
            return flat.sum(-1)
        if not self.staged:
            return self.primitive(self.order(flat, self.addition))
        if axes == 1:
            if self.products or not products:
                return self.primitive(self.order(flat, self.addition))
            n = flat.shape[-1]
            parts = [flat[..., : n // 2], flat[..., n // 2 :]] if n > 3 else [flat]
            sums = [self.primitive(self.order(p, self.addition)) for p in parts]
            return self.primitive(self.order(np.stack(sums, -1), self.addition))
        for _ in range(axes):
            terms = self.primitive(self.order(terms, self.addition))
        return terms

    def grouped(self, ids: Array, terms: Array, size: int) -> Array:
        """The sum of the terms of each number."""
        ids, terms = ids.ravel().astype(np.int64), np.asarray(terms, self.wide).ravel()
        sums = np.zeros(size, self.wide)
        if not ids.size:
            return sums
        by = np.argsort(ids, kind="stable")
        if self.order is reverse:
            by = np.argsort(ids[::-1], kind="stable")
            ids, terms = ids[::-1], terms[::-1]
        ids, terms = ids[by], terms[by]
        first = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
        turn = np.arange(ids.size) - np.repeat(first, np.diff(np.r_[first, ids.size]))
        for k in range(int(turn.max()) + 1):
            at = turn == k
            sums[ids[at]] = self.addition(sums[ids[at]] + terms[at])
        return self.primitive(sums)

    def number(self, value: Array) -> Array:
        """New numbers for the elements of a result; 0 is a constant's."""
        first = self.steps[-1].last + 1 if self.steps else 1
        return np.arange(first, first + np.size(value), dtype=np.float64).reshape(np.shape(value))

    def variable(self, x: Array) -> Emulated:
        """An input that is differentiated by."""
        value = np.asarray(x, self.wide)
        return self.made(value, lambda dy: [])

    def made(self, value: Array, pull: Callable[[Array], list[tuple[Array, Array]]]) -> Emulated:
        """A result, and what its gradient gives to each element that it came from."""
        ids = self.number(value)
        last = int(ids.max(initial=self.steps[-1].last if self.steps else 0))
        self.steps.append(Step(ids, last, pull))
        return Emulated(np.asarray(value), ids, machine=self)

    def differentiated(
        self, outputs: Sequence[Any], grads: Sequence[Any], inputs: Sequence[Any]
    ) -> list[Array | None]:
        """The gradients of the inputs, by the derivatives of what was computed."""
        size = self.steps[-1].last + 1
        gradient = np.zeros(size, self.wide)

        def give(ids: Array, terms: Array) -> None:
            added = self.grouped(ids, terms, size)
            gradient[:] = np.where(added != 0, self.primitive(gradient + added), gradient)

        for y, dy in zip(outputs, grads, strict=False):
            if isinstance(y, Emulated) and y.companion is not None and dy is not None:
                give(y.companion, np.asarray(dy, self.wide))
        for step in reversed(self.steps):
            dy = gradient[step.ids.astype(np.int64)]
            if np.any(dy != 0):
                for ids, terms in step.pull(dy):
                    give(ids, terms)
        return [
            gradient[x.companion.astype(np.int64)] if isinstance(x, Emulated) else None
            for x in inputs
        ]


@dataclass(frozen=True)
class Step:
    """A primitive that was computed: the numbers of its results, and its derivative."""

    ids: Array
    last: int
    pull: Callable[[Array], list[tuple[Array, Array]]]


class Emulated(Tracked):
    """An array of a machine, its elements numbered where they are differentiated."""

    __slots__ = ("machine",)

    def __init__(self, value: Any, companion: Any = None, *, machine: Machine) -> None:
        super().__init__(value, companion)
        self.machine = machine

    def like(self, value: Any, companion: Any = None) -> Emulated:
        return Emulated(value, companion, machine=self.machine)

    def lift(self, other: Any) -> Any:
        if isinstance(other, Tracked):
            return other
        other = np.asarray(other)
        return self.like(self.machine.primitive(other) if other.dtype.kind == "f" else other)

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        machine = self.machine
        args = [self.lift(a) for a in arguments]
        xs = [a.value for a in args]
        with np.errstate(all="ignore"):
            value = np.asarray(ufunc(*xs))
        if ufunc in COMPARISONS or ufunc in LOGIC:
            return value
        if value.dtype.kind != "f":
            return self.like(value)
        value = machine.primitive(value)
        # copies: what is written to later is not what was computed with
        given = [None if a.companion is None else a.companion.copy() for a in args]
        xs = [x.copy() for x in xs]
        if all(ids is None for ids in given) or ufunc in STEPS or ufunc is np.sign:
            return self.like(value)
        if ufunc in (np.maximum, np.minimum):
            first = xs[0] >= xs[1] if ufunc is np.maximum else xs[0] <= xs[1]
            one, two = (a.full_companion() for a in args)
            return self.like(value, np.where(first, one, two))

        def pull(dy: Array) -> list[tuple[Array, Array]]:
            moved = []
            for derivative, ids in zip(TABLE[ufunc].derivatives, given, strict=True):
                if ids is not None:
                    with np.errstate(all="ignore"):
                        slope = machine.primitive(derivative(*xs, value))
                        if np.any((abs(slope) < machine.tiny) & (abs(value) >= machine.tiny)):
                            machine.underflows.append(ufunc)
                        dx = np.where(dy == 0, 0, machine.primitive(dy * slope))
                    moved.append((np.broadcast_to(ids, dy.shape), dx))
            return moved

        return machine.made(value, pull)

    def contract(self, function: Callable[..., Any], operands: Sequence[Any], sizes: Any) -> Any:
        assert function is np.matmul
        a, b = (self.lift(x) for x in operands)
        left = "k" if a.ndim == 1 else "...ik"
        right = "k" if b.ndim == 1 else "...kj"
        out = "..." * (max(a.ndim, b.ndim) > 2) + "i" * (a.ndim > 1) + "j" * (b.ndim > 1)
        return self.summed([a, b], [left, right], out)

    def summed(self, operands: Sequence[Any], terms: Sequence[str], out: str) -> Any:
        """Sums of products, in the notation of einsum."""
        machine = self.machine
        covered = [
            x.ndim - len(t.replace("...", "")) for x, t in zip(operands, terms, strict=True)
        ]
        dots = "ZYXWVUTSRQPON"[: max(covered)]
        names = [
            t.replace("...", dots[len(dots) - n :]) for t, n in zip(terms, covered, strict=True)
        ]
        out = out.replace("...", dots)
        letters = out + "".join(dict.fromkeys(c for t in names for c in t if c not in out))
        spread = [_spread(x, t, letters) for x, t in zip(operands, names, strict=True)]
        added = len(letters) - len(out)
        values = [x.value for x in spread]
        with np.errstate(all="ignore"):
            products = values[0]
            for v in values[1:]:
                products = products * v
            if len(values) == 1 or not added:
                value = machine.primitive(machine.total(products, added)) if added else products
                value = machine.primitive(value)
            else:
                value = machine.total(products, added, products=True)
        if all(x.companion is None for x in spread):
            return self.like(value)

        def pull(dy: Array) -> list[tuple[Array, Array]]:
            dy = dy.reshape(*dy.shape, *(1,) * added)
            moved = []
            for i, x in enumerate(spread):
                if x.companion is None:
                    continue
                with np.errstate(all="ignore"):
                    dx = dy
                    for j, v in enumerate(values):
                        dx = dx * v if j != i else dx
                if len(values) > 1 and (machine.products or machine.name == "S"):
                    dx = machine.primitive(dx)
                # letters that this operand lacks, and that no axis was broadcast along
                own = [k for k, c in enumerate(letters) if c in names[i]]
                gone = [k for k in range(len(letters)) if k not in own and dx.shape[k] > 1
                        and letters[k] not in dots]  # fmt: skip
                if gone:
                    last = range(dx.ndim - len(gone), dx.ndim)
                    dx = machine.total(np.moveaxis(dx, gone, last), len(gone))
                    dx = np.expand_dims(dx, gone)
                dx = machine.primitive(dx)
                shape = np.broadcast_shapes(dx.shape, x.companion.shape)
                moved.append((np.broadcast_to(x.companion, shape), np.broadcast_to(dx, shape)))
            return moved

        return machine.made(value, pull)

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        axes = normal_axes(self.ndim, axis)
        last = range(self.ndim - len(axes), self.ndim)
        with np.errstate(all="ignore"):
            value = self.machine.total(np.moveaxis(self.value, axes, last), len(axes))
        kept = np.expand_dims(value, axes)
        value = kept if keepdims else value
        if self.companion is None:
            return self.like(value)
        ids = self.companion

        def pull(dy: Array) -> list[tuple[Array, Array]]:
            return [(ids, np.broadcast_to(dy.reshape(kept.shape), ids.shape))]

        return self.machine.made(value, pull)

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        function = np.max if sign > 0 else np.min
        return self.like(np.asarray(function(self.value, axis=axis, keepdims=keepdims)))

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        a, b = self.lift(chosen), self.lift(other)
        value = np.where(condition, a.value, b.value)
        if a.companion is None and b.companion is None:
            return self.like(value)
        return self.like(value, np.where(condition, a.full_companion(), b.full_companion()))

    def scatter_add(self, target: Any, index: Any, addend: Any) -> None:
        places = np.arange(target.value.size).reshape(target.shape)[index]
        ids = np.concatenate([np.arange(target.value.size), places.ravel()])
        shape = np.broadcast_shapes(places.shape, addend.shape)
        terms = [target.value.ravel(), np.broadcast_to(addend.value, shape).ravel()]
        with np.errstate(all="ignore"):
            total = self.machine.grouped(ids, np.concatenate(terms), target.value.size)
        target.value[...] = total.reshape(target.shape)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.einsum:
            equation, *operands = args
            left, _, out = equation.replace(" ", "").partition("->")
            return self.summed([self.lift(x) for x in operands], left.split(","), out)
        if function is np.tensordot:
            a, b, axes = (*args, *kwargs.values())
            return self._tensordot(self.lift(a), self.lift(b), axes)
        return super().__array_function__(function, types, args, kwargs)

    def _tensordot(self, a: Any, b: Any, axes: Any) -> Any:
        ones, twos = axes
        left = "abcdefgh"[: a.ndim]
        rest = iter("ijklmnop")
        right = "".join(
            left[ones[twos.index(k)]] if k in twos else next(rest) for k in range(b.ndim)
        )
        out = "".join(c for c in left + right if (c in left) != (c in right))
        return self.summed([a, b], [left, right], out)


def _spread(x: Any, term: str, letters: str) -> Any:
    """An operand with an axis for each of `letters`: of size one where it has none."""
    own = "".join(dict.fromkeys(term))
    if own != term:
        x = x.move(lambda a: np.einsum(f"{term}->{own}", a))
    order = sorted(range(len(own)), key=lambda k: letters.index(own[k]))
    x = x.transpose(order)
    sizes = iter(x.shape)
    return x.reshape(tuple(next(sizes) if c in own else 1 for c in letters))


def run(
    machine: Machine, op: Operator, arrays: Sequence[Any], grads: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """The outputs, or with `grads` the gradients by the reference's own backward."""
    made: dict[int, Any] = {}

    def lifted(x: Any, *, stored: bool = False) -> Any:
        if x is None or np.asarray(x).dtype.kind not in "fV":
            return x
        return made.setdefault(id(x), Emulated(np.asarray(x, machine.wide), machine=machine))

    inputs = tuple(lifted(x) for x in arrays)
    with np.errstate(all="ignore"):
        outputs = op(*inputs)
        if grads is None:
            return plain(machine, outputs)
        kept = tuple(
            Emulated(machine.stored(y.value), machine=machine)
            if isinstance(y, Emulated) and y.value.dtype.kind == "f" else y
            for y in outputs
        )  # fmt: skip
        return plain(machine, op.vjp(tuple(lifted(dy) for dy in grads), inputs, kept))


def composed(
    machine: Machine, op: Operator, arrays: Sequence[Any], grads: Sequence[Any]
) -> tuple[Any, ...]:
    """The gradients by the derivatives of the primitives of the reference's forward."""
    inputs = [
        x if x is None or np.asarray(x).dtype.kind not in "fV" else machine.variable(x)
        for x in arrays
    ]
    with np.errstate(all="ignore"):
        outputs = op(*inputs)
        gradients = machine.differentiated(outputs, grads, inputs)
    return tuple(None if g is None else machine.stored(g) for g in gradients)


def plain(machine: Machine, results: Sequence[Any]) -> tuple[Any, ...]:
    """Results as arrays, rounded to storage."""
    return tuple(
        None if r is None else machine.stored(r.value)
        if isinstance(r, Tracked) and r.value.dtype.kind == "f"
        else r.value if isinstance(r, Tracked) else np.asarray(r)
        for r in results
    )  # fmt: skip
