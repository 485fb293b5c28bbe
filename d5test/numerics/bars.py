"""Running error bounds: each value carries a bound of the error that honest arithmetic may make.

Higham, Accuracy and Stability of Numerical Algorithms (2002), section 3.3. The value is the
reference's in float64; the bar bounds |backend - value| for every backend that computes the same
formula in the given `Arithmetic`, in any order of summation. A bar of `None` is an exact value, an
infinite bar says that nothing is known (an intermediate may overflow; the reference itself had to
choose and the choice is in doubt). Where a result overflows that is used no further, `beyond` has
the bar it would have, so that an infinity can be demanded of the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import isfinite, prod
from typing import Any

import numpy as np

from d5test.numerics.arithmetic import Arithmetic, Format, Payment
from d5test.numerics.bar_rules import RULES, Rule, exact, in_range
from d5test.numerics.chains import Chain
from d5test.numerics.elementary import ADDITIONS
from d5test.numerics.functions import normal_axes, overflowing
from d5test.numerics.infinities import certain_at_infinity, certain_products, certain_sums
from d5test.numerics.perturbed import round_to
from d5test.numerics.tracked import Tracked, Values


def constant_error(number: Any, fmt: Format) -> Values | None:
    """By how much a number of the formula may change when it is stored; `None` if not at all.

    Whole numbers and arrays do not: they count, or they are inputs.
    """
    if not isinstance(number, float) or not isfinite(number) or fmt.precision == 53:
        return None
    return _constant_error(float(number), fmt)


@cache
def _constant_error(number: float, fmt: Format) -> Values | None:
    error = abs(number - float(round_to(np.asarray(number), fmt.precision)))
    if 0 < abs(number) < fmt.smallest_normal:
        error = max(error, fmt.smallest_subnormal / 2)
    kept = np.asarray(error)
    kept.setflags(write=False)
    return kept if error else None


class Bar(Tracked):
    """A value and the bound of its error (`companion`), in one arithmetic."""

    __slots__ = ("arithmetic", "beyond")

    def __init__(
        self, value: Values, bar: Values | None = None, *, arithmetic: Arithmetic
    ) -> None:
        self.value = value
        self.companion = bar
        self.chain = None
        self.arithmetic = arithmetic
        self.beyond: Values | None = None

    def like(self, value: Values, companion: Values | None = None) -> Bar:
        return Bar(value, companion, arithmetic=self.arithmetic)

    # elementwise functions

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        xs: list[Values] = []
        bars: list[Values | None] = []
        rule: Rule = RULES.get(ufunc, exact)
        for a in arguments:
            tracked = isinstance(a, Tracked)
            xs.append(a.value if tracked else np.asarray(a))
            bars.append(a.companion if tracked else constant_error(a, self.arithmetic.primitive))
        if ufunc in ADDITIONS and any(isinstance(a, Tracked) and a.chain for a in arguments):
            result = self._gone_on(rule, ufunc, [self.lift(a) for a in arguments], bars)
        else:
            result = rule(self, ufunc, xs, bars)
        if isinstance(result, Bar) and (self.arithmetic.infinite or result.beyond is not None):
            return certain_at_infinity(result, ufunc, xs, bars)
        return result

    def _gone_on(
        self, rule: Rule, ufunc: np.ufunc, arguments: Sequence[Bar], bars: Sequence[Values | None]
    ) -> Bar:
        """A sum of products with what is added: both may be one sum, in any order."""
        one, other = (a.as_chain() for a in arguments)
        whole, error = one + other, self.arithmetic.sum_error
        known = []
        for part, bar in zip((one, other), bars, strict=True):
            more = (error(whole.terms) - error(part.terms)) * part.size
            known.append(more if bar is None else more + bar)
        result: Bar = rule(self, ufunc, [a.value for a in arguments], known)
        result.chain = whole
        return result

    def rounded(self, value: Values, bar: Values | None, payment: Payment) -> Bar:
        """`value` with its bar, after one more primitive."""
        size = np.absolute(value)
        paid = size * payment.error + payment.eta
        if bar is not None:
            paid += bar
        if payment.flushed:
            paid += np.minimum(size if bar is None else size + bar, payment.flushed)
        if in_range(paid, payment):
            return self.like(value, paid)
        return self._within_range(value, bar, paid)

    def _within_range(self, value: Values, bar: Values | None, paid: Values) -> Bar:
        """`value` with the bar `paid`, infinite where it may overflow: |value| + `bar` tells."""
        size = np.absolute(value)
        within = (size if bar is None else size + bar) <= self.arithmetic.primitive.largest
        if within.all():
            return self.like(value, paid)
        result = self.like(value, np.where(within, paid, np.inf))
        result.beyond = paid
        return result

    # sums

    def contract(
        self, function: Callable[..., Any], operands: Sequence[Any], sizes: tuple[int, ...]
    ) -> Bar:
        xs = [self.lift(x) for x in operands]
        value = np.asarray(function(*(x.value for x in xs)))
        magnitudes = [np.absolute(x.value) for x in xs]
        payment, bar = self.arithmetic.summation(prod(sizes), _axes(sizes)), None
        for i, x in enumerate(xs):
            if x.companion is not None:
                # telescoping: the factors before with their bars, those after without; the first
                # product takes the sum's own error with it, one product fewer
                reach = [s if y.companion is None else s + y.companion
                         for s, y in zip(magnitudes[:i], xs, strict=False)]  # fmt: skip
                moved = x.companion
                if bar is None:
                    moved = magnitudes[i] * payment.error + moved
                product = function(*reach, moved, *magnitudes[i + 1 :])
                bar = product if bar is None else bar + product
        if bar is None:
            bar = function(*magnitudes) * payment.error
        result = self._summed(
            value, bar + payment.eta, payment, lambda: certain_products(self, function, xs)
        )
        if prod(sizes) > 1:
            result.chain = Chain(prod(sizes), lambda: function(*magnitudes))
        return result

    def in_any_order(
        self, result: Any, terms: Sequence[str], right: str, factors: Sequence[Any]
    ) -> Any:
        """The product, of which nothing is known where one of some factors may overflow."""
        sizes = [np.absolute(x.value) + x.full_companion() for x in map(self.lift, factors)]
        places = overflowing(terms, right, sizes, self.arithmetic.storage.largest)
        if not places.any():
            return result
        return self.like(result.value, np.where(places, np.inf, result.full_companion()))

    def multiplied(self, result: Any, factors: Any) -> Any:
        """Nothing is known where some of the factors overflow or underflow in another order."""
        size, known = np.absolute(factors.value), factors.full_companion()
        fmt = self.arithmetic.primitive
        least = np.where(size > known, size - known, 1.0)  # a factor that may be zero is not small
        over = np.maximum(size + known, 1.0).prod(0) > fmt.largest
        under = np.minimum(least, 1.0).prod(0) < fmt.smallest_normal
        doubt = (over | under) & np.isfinite(result.value) & (len(factors.value) > 1)
        if not doubt.any():
            return result
        return self.like(result.value, np.where(doubt, np.inf, result.full_companion()))

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        value = self.value.sum(axis=axis, keepdims=keepdims)
        terms = self.value.size // value.size if value.size else 0
        bar = self.companion
        if terms > 1:
            summed = tuple(self.shape[a] for a in normal_axes(self.ndim, axis))
            payment = self.arithmetic.summation(terms - 1, _axes(summed) - 1)
            paid = np.absolute(self.value) * payment.error
            bar = paid if bar is None else paid + bar
        if bar is not None:
            bar = np.asarray(bar.sum(axis=axis, keepdims=keepdims))
        if terms <= 1:
            return self.like(np.asarray(value), bar)
        return self._summed(
            np.asarray(value), bar, payment, lambda: certain_sums(self, axis, keepdims)
        )

    def accumulated(self) -> Any:
        """Each partial sum in any order of its own, by additions that are primitives.

        The last addition of each pays for the result; those before it for the sum of magnitudes,
        which no sum of fewer terms exceeds: where it overflows, one of them may.
        """
        if len(self) < 2:
            return self.copy()
        additions = replace(self.arithmetic, sums=self.arithmetic.primitive)
        before = np.arange(len(self) - 1).reshape(-1, *(1 for _ in self.shape[1:]))
        errors = np.vectorize(additions.sum_error, otypes=[float])(before)
        known = np.zeros(()) if self.companion is None else self.full_companion()
        sizes = (np.absolute(self.value) + known).cumsum(0)[1:]
        bar = sizes * errors + before * additions.eta
        if self.companion is not None:
            bar += known.cumsum(0)[1:]
        bar[(sizes > self.arithmetic.primitive.largest) & (before > 0)] = np.inf
        sums = self.rounded(self.value.cumsum(0)[1:], bar, self.arithmetic.granted[np.add])
        if self.arithmetic.infinite:
            exact = [certain_sums(self[: n + 2], 0, keepdims=False) for n in range(len(sums))]
            certain = np.isinf(sums.value) & np.stack(exact)
            sums = self.like(sums.value, np.where(certain, 0.0, sums.full_companion()))
        result: Any = np.concatenate([self[:1], sums])
        result.chain = Chain(len(self) * self.as_chain().terms, result.size_of_terms)
        return result

    def _summed(
        self, value: Values, bar: Values, payment: Payment, certain: Callable[[], Values]
    ) -> Bar:
        """`value` with its bar, into which the sum has paid.

        A sum of many terms that overflows may become NaN in another order of its terms, so that
        no infinity is demanded there, but where it is `certain`, of infinite terms.
        """
        after = self.arithmetic.after_sum
        paid = bar + after.eta
        if after.error:
            paid += np.absolute(value) * after.error
        if in_range(paid, payment):
            result = self.like(value, paid)
        else:
            result = self._within_range(value, bar, paid)
            result.beyond = None
        if self.arithmetic.infinite and (infinite := np.isinf(value) | (value == 0)).any():
            exact = infinite & certain()
            result.companion = np.where(exact, 0.0, result.full_companion())
        return result

    # order: max, min and what they select are 1-Lipschitz, so their bar is that of a candidate

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        function = self.value.max if sign > 0 else self.value.min
        value = np.asarray(function(axis=axis, keepdims=keepdims))
        if self.companion is None:
            return self.like(value)
        near: Values = np.where(self._candidates(sign, axis), self.companion, 0.0)
        return self.like(value, np.asarray(near.max(axis=axis, keepdims=keepdims, initial=0)))

    def _candidates(self, sign: int, axis: Any) -> Values:
        """Which elements may be the extremum."""
        bar = self.full_companion()
        x = self.value if sign > 0 else -self.value
        certain = (x - bar).max(axis=axis, keepdims=True, initial=-np.inf)
        return x + bar >= certain

    def argument(self, sign: int, axis: Any, keepdims: bool) -> Any:
        index = super().argument(sign, axis, keepdims)
        if self.companion is None and not self.arithmetic.ties:
            return index
        rivals = self._candidates(sign, axis)
        several = np.sum(rivals, axis=axis, keepdims=keepdims) > 1
        if not several.any():
            return index
        return Choice(index, np.where(several, np.inf, 0.0), rivals, self.arithmetic)

    def argsort(self, axis: int = -1, kind: Any = None, *, stable: Any = None) -> Any:
        """In doubt are the places of neighbours that may change them, or are equal."""
        index = np.argsort(self.value, axis=axis, kind="stable")
        x = np.moveaxis(np.take_along_axis(self.value, index, axis), axis, -1)
        bar = np.moveaxis(np.take_along_axis(self.full_companion(), index, axis), axis, -1)
        near = np.diff(x) <= bar[..., 1:] + bar[..., :-1]
        if not near.any():
            return index
        doubt = np.zeros(x.shape, bool)
        doubt[..., 1:] |= near
        doubt[..., :-1] |= near
        return self.like(index, np.where(np.moveaxis(doubt, -1, axis), np.inf, 0.0))

    def sorted(self, axis: int = -1) -> Any:
        """Each order statistic lies between those of the lower and of the upper ends."""
        value = np.sort(self.value, axis)
        if self.companion is None:
            return self.like(value)
        ends = (np.sort(self.value + sign * self.companion, axis) for sign in (-1, 1))
        return self.like(value, np.max([np.absolute(end - value) for end in ends], axis=0))

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        """The one or the other; where the condition is in doubt, all from the one to the other."""
        a, b = self.lift(chosen), self.lift(other)
        certain = condition.value if isinstance(condition, Tracked) else condition
        value: Values = np.where(certain, a.value, b.value)
        doubt = condition.companion if isinstance(condition, Tracked) else None
        if a.companion is None and b.companion is None and doubt is None:
            return self.like(value)
        one, two = a.full_companion(), b.full_companion()
        bar: Values = np.where(certain, one, two)
        whole = bar if bar.shape == value.shape else np.broadcast_to(bar, value.shape).copy()
        result = self.like(value, whole)
        result.chain = Chain.where(certain, a, b)
        return result if doubt is None else result.or_between(doubt, a, b)

    def or_between(self, doubt: Values, one: Bar, other: Bar) -> Bar:
        """Where there is doubt, all numbers from `one` to `other`; elsewhere this array's."""
        a, b = one.full_companion(), other.full_companion()
        least = np.minimum(one.value - a, other.value - b)
        most = np.maximum(one.value + a, other.value + b)
        half = (most - least) / 2
        known = np.isfinite(half)
        value = np.where((doubt > 0) & known, (least + most) / 2, self.value)
        bar = np.where(known, half, np.inf)
        return self.like(value, np.where(doubt > 0, bar, self.full_companion()))

    def scatter_add(self, target: Any, index: Any, addend: Any) -> None:
        """Each landing adds one term; the count of terms is bounded by the addend's size."""
        magnitude = np.zeros(target.shape)
        np.add.at(magnitude, index, np.abs(addend.value))
        landings = np.zeros(target.shape)
        np.add.at(landings, index, np.ones(np.shape(addend.value)))
        magnitude += np.where(landings > 0, np.abs(target.value), 0.0)
        super().scatter_add(target, index, addend)
        most = int(landings.max(initial=0))
        if most > 1 or (most == 1 and np.any(target.value[landings > 0])):
            error = self.arithmetic.sum_error(most)
            target.companion = target.full_companion() + np.where(
                landings > 0, magnitude * error, 0.0
            )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.put_along_axis and isinstance(args[1], Choice):
            return _put_choice(*args, **kwargs)
        if function is np.take_along_axis and isinstance(args[1], Choice):
            return _take_choice(self, *args, **kwargs)
        if function in (np.take_along_axis, np.put_along_axis) and isinstance(args[1], Bar):
            return (_taken if function is np.take_along_axis else _put)(self, *args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)


def _taken(kind: Bar, array: Any, index: Bar, axis: int = -1) -> Bar:
    """What stands at an index; nothing is known where that is in doubt."""
    taken: Bar = kind.lift(array).move(np.take_along_axis, index.value, axis)
    bar = taken.full_companion() + np.broadcast_to(index.full_companion(), taken.shape)
    return kind.like(taken.value, bar)


def _put(kind: Bar, target: Any, index: Bar, source: Any, axis: int) -> None:
    """Nothing is known along the axis where a place is in doubt."""
    np.put_along_axis(target, index.value, source, axis)
    doubt = index.full_companion().max(axis=axis, keepdims=True, initial=0.0)
    target.companion = target.full_companion() + np.broadcast_to(doubt, target.shape)


def masking(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs of a formula whose own infinities, as of a mask, are exact in gradients, too.

    Not where an input is infinite itself.
    """
    return tuple(
        Bar(x.value, x.companion, arithmetic=replace(x.arithmetic, masks=True))
        if isinstance(x, Bar) and not x.arithmetic.infinite
        else x
        for x in inputs
    )


def scaled_last(y: Any, scale: float) -> Any:
    """`y`, a product with a factor up to `scale` that may be the last one to be multiplied.

    Then what underflowed before is off by more than where it is the first.
    """
    if not isinstance(y, Bar) or y.companion is None or scale <= 1:
        return y
    lost = scale * y.arithmetic.primitive.smallest_subnormal
    return y.like(y.value, np.where(y.companion > 0, y.companion + lost, y.companion))


def _axes(sizes: tuple[int, ...]) -> int:
    """How many axes there is something to sum over."""
    return sum(size > 1 for size in sizes)


class Choice(Bar):
    """The index of an extremum that has rivals: which one is chosen is in doubt."""

    __slots__ = ("rivals",)

    def __init__(
        self, value: Values, bar: Values | None, rivals: Values, arithmetic: Arithmetic
    ) -> None:
        super().__init__(value, bar, arithmetic=arithmetic)
        self.rivals = rivals


def _put_choice(target: Bar, index: Choice, source: Any, axis: int) -> None:
    """Any rival may get the value, or a part of it (a subgradient): between 0 and the value."""
    source = target.lift(source)
    np.put_along_axis(target.value, index.value, source.value, axis)
    bar = target.full_companion()
    np.put_along_axis(bar, index.value, source.full_companion(), axis)
    doubt = index.rivals & (np.sum(index.rivals, axis=axis, keepdims=True) > 1)
    put = target.like(target.value, bar).or_between(doubt, source, target.like(np.zeros(())))
    target.value, target.companion = put.value, put.companion


def _take_choice(kind: Bar, array: Any, index: Choice, axis: int) -> Bar:
    """Any rival's value."""
    array = kind.lift(array)
    bar = array.full_companion()
    least = np.where(index.rivals, array.value - bar, np.inf).min(axis=axis, keepdims=True)
    most = np.where(index.rivals, array.value + bar, -np.inf).max(axis=axis, keepdims=True)
    taken: Bar = array.move(np.take_along_axis, index.value, axis)
    return taken.or_between(index.full_companion(), kind.like(least), kind.like(most))
