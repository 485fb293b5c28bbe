"""Reverse mode: the gradients of a formula, from its forward alone.

    gradients(lambda x, w: np.tanh(x @ w), (dy,), (x, w))

The formula runs on `Variable`s, which record what was done to them; then each step, from the last
to the first, hands its gradient to what it was made of. Rules are the table of primitives and the
adjoints of what sums and moves. Values may themselves be tracked arrays: with error bars a
gradient has the bar of the chain rule, with dual numbers a derivative of its own.

An operator that is called in a formula is one step, with its own `backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, count, pairwise
from typing import Any

import numpy as np

from d5test.case import Operator, as_tuple
from d5test.numerics.elementary import COMPARISONS, LOGIC, STEPS, TABLE, no_row
from d5test.numerics.functions import normal_axes
from d5test.numerics.tracked import Tracked, as_array, in_doubt, plain, times, zeros_of

Pull = Callable[[Any], Any]
_numbers = count()


@dataclass(frozen=True, eq=False)
class Step:
    """What was computed, and of what: earlier steps, each with its share of the gradient."""

    number: int
    sources: tuple[tuple[Step, Pull], ...] = ()


class Variable(Tracked):
    """A value and the step that made it (`companion`); `None` is a constant."""

    __slots__ = ("exponent", "owned", "plus_one")

    def __init__(self, value: Any, step: Step | None = None, *, owned: bool = True) -> None:
        super().__init__(value, step)
        self.owned = owned
        """Whether nothing else has its memory, so that it may be written to."""
        self.exponent: Variable | None = None
        """What this is the exponential of."""
        self.plus_one = False
        """Whether it is one more than that exponential."""

    def made(self, value: Any, sources: Sequence[tuple[Any, Pull]], *, owned: bool = True) -> Any:
        """The result of a step; `sources` are arguments and their shares of its gradient."""
        steps = tuple(
            (x.companion, pull)
            for x, pull in sources
            if isinstance(x, Variable) and x.companion is not None
        )
        step = Step(next(_numbers), steps) if steps else None
        return Variable(as_array(value), step, owned=owned)

    def lift(self, other: Any) -> Any:
        return other if isinstance(other, Variable) else Variable(as_array(other))

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return Variable(zeros_of(self.value, shape))

    # computation

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        xs = [_value(a) for a in arguments]
        value = ufunc(*xs)
        if ufunc in COMPARISONS or ufunc in LOGIC:
            return Variable(value) if isinstance(value, Tracked) else value
        if ufunc in STEPS or ufunc is np.sign:
            return Variable(as_array(value))
        if ufunc in (np.divide, np.reciprocal) and getattr(arguments[-1], "plus_one", False):
            return self._by_one_plus_exp(value, *arguments)
        if ufunc in (np.maximum, np.minimum):
            first = xs[0] >= xs[1] if ufunc is np.maximum else xs[0] <= xs[1]
            pulls: list[Pull] = [
                lambda dy: np.where(first, dy, 0.0),
                lambda dy: np.where(first, 0.0, dy),
            ]
        elif ufunc in TABLE:
            pulls = [partial(_along, d, xs, value) for d in TABLE[ufunc].derivatives]
        elif not np.issubdtype(value.dtype, np.floating):
            return Variable(as_array(value))
        else:
            raise no_row(ufunc)
        made = self.made(value, [(a, _to(a, p)) for a, p in zip(arguments, pulls, strict=True)])
        if ufunc is np.exp:
            made.exponent = self.now
        elif ufunc is np.add and any(isinstance(a, int | float) and a == 1 for a in arguments):
            made.exponent = self.exponent
            made.plus_one = self.exponent is not None and not self.plus_one
        return made

    def _by_one_plus_exp(self, value: Any, *arguments: Any) -> Any:
        """a / (1 + exp(t)): a logistic function s, whose slope is in use as s (1 - s), too.

        The bars of that hold the other form, exp(t) / (1 + exp(t))^2.
        """
        *above, below = arguments
        share = 1 / below.value

        def to_exponent(dy: Any) -> Any:
            return -(value * (1 - share)) * dy

        sources = [(below.exponent, _to(below.exponent, to_exponent))]
        sources += [(a, _to(a, lambda dy: dy / below.value)) for a in above]
        return self.made(value, sources)

    def contract(
        self, function: Callable[..., Any], operands: Sequence[Any], sizes: tuple[int, ...]
    ) -> Any:
        a, b = (self.lift(x) for x in operands)
        if function is np.dot and b.ndim > 2:
            raise TypeError("a formula may not call numpy.dot on three axes: use numpy.einsum")
        left = np.expand_dims(a.value, 0) if a.ndim == 1 else a.value
        right = np.expand_dims(b.value, 1) if b.ndim == 1 else b.value

        def whole(dy: Any) -> Any:
            dy = np.expand_dims(dy, -1) if b.ndim == 1 else dy
            return np.expand_dims(dy, -2) if a.ndim == 1 else dy

        def to_left(dy: Any) -> Any:
            dx = np.matmul(whole(dy), np.swapaxes(right, -1, -2))
            return np.reshape(_summed_to(dx, left.shape), a.shape)

        def to_right(dy: Any) -> Any:
            dx = np.matmul(np.swapaxes(left, -1, -2), whole(dy))
            return np.reshape(_summed_to(dx, right.shape), b.shape)

        return self.made(function(a.value, b.value), [(a, to_left), (b, to_right)])

    def einsum(self, equation: str, *operands: Any) -> Any:
        """Sums of products: the gradient of a factor is one of the others and the upstream one."""
        xs = [self.lift(x) for x in operands]
        *terms, out = _terms(equation, [x.ndim for x in xs])

        def pull(i: int) -> Pull:
            others = [*terms[:i], *terms[i + 1 :]]
            known = {*out, *"".join(others)}
            own = "".join(letter for letter in terms[i] if letter in known)
            reverse = f"{','.join([out, *others])}->{own}"
            lone = tuple(k for k, letter in enumerate(terms[i]) if letter not in known)

            def to_factor(dy: Any) -> Any:
                values = [x.value for k, x in enumerate(xs) if k != i]
                dx = np.expand_dims(np.einsum(reverse, dy, *values), lone)
                dx = _summed_to(dx, _least(dx.shape, xs[i].shape))
                return np.broadcast_to(dx, xs[i].shape)

            return to_factor

        value = np.einsum(f"{','.join(terms)}->{out}", *(x.value for x in xs))
        return self.made(value, [(x, pull(i)) for i, x in enumerate(xs)])

    def tensordot(self, a: Any, b: Any, axes: Any = 2) -> Any:
        a, b = self.lift(a), self.lift(b)
        if isinstance(axes, int):
            axes = range(a.ndim - axes, a.ndim), range(axes)
        one, two = normal_axes(a.ndim, axes[0]), normal_axes(b.ndim, axes[1])
        left = _LETTERS[: a.ndim]
        rest = iter(_LETTERS[a.ndim :])
        right = "".join(left[one[two.index(k)]] if k in two else next(rest) for k in range(b.ndim))
        out = "".join(letter for letter in left + right if (letter in left) != (letter in right))
        return self.einsum(f"{left},{right}->{out}", a, b)

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        axes = normal_axes(self.ndim, axis)

        def pull(dy: Any) -> Any:
            dy = dy if keepdims else np.expand_dims(dy, axes)
            return np.broadcast_to(dy, self.shape)

        return self.made(self.value.sum(axis=axis, keepdims=keepdims), [(self.now, pull)])

    def cumsum(self, axis: Any = None) -> Any:
        x = self.ravel() if axis is None else self.now
        along = 0 if axis is None else axis
        value = np.cumsum(x.value, along)
        return self.made(
            value, [(x, lambda dy: np.flip(np.cumsum(np.flip(dy, along), along), along))]
        )

    def accumulated(self) -> Any:
        return self.made(
            np.add.accumulate(self.value),
            [(self.now, lambda dy: np.flip(np.add.accumulate(np.flip(dy, 0)), 0))],
        )

    # order and choice

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        """The gradient is that of the element that is taken, which may be in doubt."""
        axes = normal_axes(self.ndim, axis)
        rest = tuple(a for a in range(self.ndim) if a not in axes)
        order, kept = (*rest, *axes), tuple(self.shape[a] for a in rest)
        turned = np.transpose(self.value, order)
        rows = np.reshape(turned, (*kept, -1))
        index = (np.argmax if sign > 0 else np.argmin)(rows, axis=-1, keepdims=True)

        def pull(dy: Any) -> Any:
            dx = np.zeros_like(dy, shape=rows.shape)
            np.put_along_axis(dx, index, np.reshape(dy, (*kept, 1)), -1)
            return np.transpose(np.reshape(dx, turned.shape), np.argsort(order))

        function = np.max if sign > 0 else np.min
        value = function(self.value, axis=axis, keepdims=keepdims)
        return self.made(value, [(self.now, pull)])

    def argument(self, sign: int, axis: Any, keepdims: bool) -> Any:
        function = np.argmax if sign > 0 else np.argmin
        return function(self.value, axis=axis, keepdims=keepdims)

    def argsort(self, axis: int = -1, kind: Any = None, *, stable: Any = None) -> Any:
        return np.argsort(self.value, axis=axis, kind="stable")

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        a, b, which = self.lift(chosen), self.lift(other), _value(condition)
        return self.made(
            np.where(which, a.value, b.value),
            [
                (a, _to(a, lambda dy: np.where(which, dy, 0.0))),
                (b, _to(b, lambda dy: np.where(which, 0.0, dy))),
            ],
        )

    # what moves elements

    def move(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The gradient goes back to where the elements came from: their numbers, moved, say."""
        value = as_array(function(self.value, *args, **kwargs))
        size, shape = self.size, self.shape
        owned = not np.may_share_memory(plain(value), plain(self.value))
        if function is np.broadcast_to:
            return self.made(value, [(self.now, lambda dy: _summed_to(dy, shape))], owned=False)
        if function in (np.tril, np.triu):  # the zeros are no element, not even the first
            return self.made(value, [(self.now, lambda dy: function(dy, *args, **kwargs))])
        if function is np.take_along_axis and isinstance(args[0], Tracked):
            index, *axis = args  # a choice that is in doubt
            axis = axis or [kwargs.get("axis", -1)]
            return self.made(value, [(self.now, lambda dy: _put(dy, shape, index, *axis))])

        def pull(dy: Any) -> Any:
            numbers = np.arange(size).reshape(shape)
            places = np.ravel(np.asarray(function(numbers, *args, **kwargs)))
            dx = np.zeros_like(dy, shape=(size,))
            if np.bincount(places, minlength=size).max(initial=0) > 1:
                np.add.at(dx, places, np.ravel(dy))
            else:
                dx[places] = np.ravel(dy)
            return np.reshape(dx, shape)

        return self.made(value, [(self.now, pull)], owned=owned)

    def __getitem__(self, key: Any) -> Any:
        if in_doubt(key):
            return self.chosen(key)
        return self.move(lambda elements: as_array(elements[key]))

    def _join(self, function: Any, arrays: Any, axis: int = 0) -> Any:
        xs = [self.lift(a) for a in arrays]
        value = function([x.value for x in xs], axis=axis)
        along = axis % value.ndim
        before = (slice(None),) * along
        if function is np.stack:
            keys: list[Any] = list(range(len(xs)))
        else:
            ends = accumulate((x.shape[along] for x in xs), initial=0)
            keys = [slice(*pair) for pair in pairwise(ends)]
        return self.made(
            value, [(x, partial(_part, (*before, k))) for x, k in zip(xs, keys, strict=True)]
        )

    def _split(self, function: Any, array: Any, sections: Any, axis: int = 0) -> list[Any]:
        before = (slice(None),) * (axis % array.ndim)
        parts = function(np.arange(array.shape[axis]), sections)
        return [array[(*before, p)] for p in parts]

    def padded(self, x: Any, width: Any, mode: str = "constant", **options: Any) -> Any:
        if mode != "constant":
            return x.move(np.pad, width, mode, **options)
        pairs = np.broadcast_to(width, (x.ndim, 2))
        inside = tuple(slice(a, a + n) for (a, _), n in zip(pairs, x.shape, strict=True))
        value = np.pad(x.value, width, "constant", **options)
        return self.made(value, [(x, lambda dy: dy[inside])])

    # what is written

    @property
    def now(self) -> Variable:
        """This variable as it is, whatever is written to it later."""
        return Variable(self.value, self.companion, owned=False)

    def written(self, value: Any, sources: Sequence[tuple[Any, Pull]]) -> None:
        """Take the value of a step, as if it had been written here."""
        if not self.owned:
            raise TypeError(
                "a formula may not write into its input or into a part of another array, nor by "
                "y[key] *= 2: write y[key] = y[key] * 2 on an array of its own, such as "
                "numpy.zeros_like(x) or x.copy()"
            )
        made = self.made(value, sources)
        self.value, self.companion = made.value, made.companion
        self.exponent, self.plus_one = None, False

    def __setitem__(self, key: Any, other: Any) -> None:
        other = self.lift(other)
        value = np.copy(_alike(self.value, other.value))
        value[key] = other.value

        def to_rest(dy: Any) -> Any:
            dx = np.copy(dy)
            dx[key] = 0.0
            return dx

        self.written(value, [(self.now, to_rest), (other, _to(other, lambda dy: dy[key]))])

    def scatter_add(self, target: Any, index: Any, addend: Any) -> None:
        value = np.copy(_alike(target.value, addend.value))
        np.add.at(value, index, addend.value)
        target.written(
            value, [(target.now, lambda dy: dy), (addend, _to(addend, lambda dy: dy[index]))]
        )

    def put_along_axis(self, target: Any, index: Any, source: Any, axis: int) -> None:
        source = target.lift(source)
        value = np.copy(_alike(target.value, source.value))
        np.put_along_axis(value, index, source.value, axis)

        def to_rest(dy: Any) -> Any:
            dx = np.copy(dy)
            np.put_along_axis(dx, index, np.zeros(()), axis)
            return dx

        def to_source(dy: Any) -> Any:
            return np.take_along_axis(dy, index, axis)

        target.written(value, [(target.now, to_rest), (source, _to(source, to_source))])

    # operators, and NumPy's functions with rules of their own

    def applied(self, op: Operator, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of an operator as one step, with the operator's own gradient."""
        if not op.differentiable:
            return as_tuple(op.forward(*inputs))
        values = tuple(_value(x) for x in inputs)
        outputs = op(*values)

        def to_input(i: int, dys: Parts) -> Any:
            return op.vjp(dys.of(len(outputs)), values, outputs)[i]

        joint = self.made(np.zeros(()), [(x, partial(to_input, i)) for i, x in enumerate(inputs)])

        def output(k: int, y: Any) -> Any:
            flows = y.dtype.kind == "f" and k not in op.stopped_outputs
            return self.made(y, [(joint, lambda dy: Parts({k: dy}))] if flows else [])

        return tuple(output(k, as_array(y)) for k, y in enumerate(outputs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = OWN.get(function)
        if rule is not None:
            return rule(self, *args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)


OWN: dict[Any, Callable[..., Any]] = {
    np.einsum: Variable.einsum,
    np.tensordot: Variable.tensordot,
    np.pad: Variable.padded,
    np.put_along_axis: Variable.put_along_axis,
}


class Parts(dict[int, Any]):
    """Upstream gradients of some outputs of one step."""

    def __add__(self, other: Parts) -> Parts:
        both = self.keys() & other.keys()
        return Parts({**self, **other, **{k: self[k] + other[k] for k in both}})

    def of(self, outputs: int) -> tuple[Any, ...]:
        """One for each output, `None` where nothing came."""
        return tuple(self.get(k) for k in range(outputs))


def gradients(
    function: Callable[..., Any],
    grads: Sequence[Any],
    inputs: Sequence[Any],
    visit: Callable[[Any], None] = lambda dy: None,
) -> tuple[Any, ...]:
    """The gradient of each input of `function`, `None` of one that holds no real numbers.

    `grads` has an upstream gradient for each output, `None` where there is none. `visit` gets the
    gradient of each step on the way.
    """
    variables = [
        x if x is None or not _real(x) else Variable(x, Step(next(_numbers)), owned=False)
        for x in inputs
    ]
    outputs = as_tuple(function(*variables))
    upstream: dict[Step, Any] = {}
    for y, dy in zip(outputs, grads, strict=False):
        if isinstance(y, Variable) and y.companion is not None and dy is not None:
            upstream[y.companion] = upstream[y.companion] + dy if y.companion in upstream else dy
    reached: dict[Any, Any] = {}
    while upstream:
        step = max(upstream, key=lambda s: s.number)
        dy = reached[step] = upstream.pop(step)
        visit(dy)
        for source, pull in step.sources:
            dx = pull(dy)
            if dx is not None:
                upstream[source] = upstream[source] + dx if source in upstream else dx
    like = next((dy for dy in grads if dy is not None), np.zeros(()))
    return tuple(
        None
        if not isinstance(x, Variable)
        else reached.get(x.companion, np.zeros_like(like, shape=x.shape))
        for x in variables
    )


def _real(x: Any) -> bool:
    return np.dtype(x.dtype).kind in "fV"


def _value(x: Any) -> Any:
    """What a function of NumPy gets; numbers of the formula as they are."""
    return x.value if isinstance(x, Variable) else x


def _alike(x: Any, other: Any) -> Any:
    """`x` as an array that `other` can be written to."""
    return other.lift(x) if isinstance(other, Tracked) else x


def _along(derivative: Callable[..., Any], xs: Sequence[Any], value: Any, dy: Any) -> Any:
    return times(derivative(*xs, value), dy)


def _part(key: Any, dy: Any) -> Any:
    return dy[key]


def _to(x: Any, pull: Pull) -> Pull:
    """A share of a gradient in the shape of the argument, which may have been broadcast."""
    shape = np.shape(x)
    return lambda dy: _summed_to(pull(dy), shape)


def _summed_to(dx: Any, shape: tuple[int, ...]) -> Any:
    """The adjoint of broadcasting from `shape`: summed over the axes that this added."""
    if dx.shape == shape:
        return dx
    added = dx.ndim - len(shape)
    axes = [k for k in range(dx.ndim) if k < added or shape[k - added] == 1 != dx.shape[k]]
    dx = np.sum(dx, axis=tuple(axes), keepdims=True) if axes else dx
    dx = np.reshape(dx, dx.shape[added:])
    return np.broadcast_to(dx, shape)


def _least(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if m == 1 else n for n, m in zip(shape, other, strict=True))


def _put(dy: Any, shape: tuple[int, ...], index: Any, axis: int) -> Any:
    dx = np.zeros_like(dy, shape=shape)
    np.put_along_axis(dx, index, dy, axis)
    return dx


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _terms(equation: str, ranks: Sequence[int]) -> list[str]:
    """The letters of each factor and of the result, those of an ellipsis among them."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        named = left.replace("...", "").replace(",", "")
        once = sorted(c for c in set(named) if named.count(c) == 1)
        out = "..." * ("..." in left) + "".join(once)
    spread = [n - len(t.replace("...", "")) for t, n in zip(terms, ranks, strict=True)]
    free = "".join(c for c in _LETTERS + _LETTERS.upper() if c not in equation)
    dots = free[: max((n for t, n in zip(terms, spread, strict=True) if "..." in t), default=0)]
    made = [t.replace("...", dots[len(dots) - n :]) for t, n in zip(terms, spread, strict=True)]
    if any(len(set(t)) < len(t) for t in made):
        raise TypeError(f"{equation}: no gradient of a letter twice in a factor; use diagonal")
    return [*made, out.replace("...", dots)]
