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
from typing import Any

import numpy as np

from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bar_rules import RULES
from d5test.numerics.elementary import COMPARISONS, LOGIC, TABLE
from d5test.numerics.functions import count
from d5test.numerics.tracked import Tracked, Values


class Bar(Tracked):
    """A value and the bound of its error (`companion`), in one arithmetic."""

    __slots__ = ("arithmetic", "beyond")

    def __init__(
        self, value: Values, bar: Values | None = None, *, arithmetic: Arithmetic
    ) -> None:
        self.value = value
        self.companion = bar
        self.arithmetic = arithmetic
        self.beyond: Values | None = None

    def like(self, value: Values, companion: Values | None = None) -> Bar:
        return Bar(value, companion, arithmetic=self.arithmetic)

    # elementwise functions

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        xs = [a.value if isinstance(a, Tracked) else np.asarray(a) for a in arguments]
        bars = [a.companion if isinstance(a, Tracked) else None for a in arguments]
        rule = RULES.get(ufunc)
        if rule is not None:
            return rule(self, ufunc, xs, bars)
        if ufunc in COMPARISONS:
            return self._compare(ufunc, xs, bars)
        if ufunc in LOGIC:
            return self._logic(ufunc, xs, bars)
        if ufunc in TABLE:
            return self._smooth(ufunc, xs, bars)
        return self._exact(ufunc, xs, bars)

    def rounded(
        self, value: Values, bar: Values | None, error: float, *, sum_of_many: bool = False
    ) -> Bar:
        """`value` with its bar, after one more primitive of relative error `error`.

        A sum of many terms that overflows may become NaN in another order of its terms, so that
        no infinity is demanded there.
        """
        paid, largest = np.absolute(value, dtype=np.float64), self.arithmetic.primitive.largest
        reach = paid if bar is None else paid + bar
        within = None
        if reach.size and not np.maximum.reduce(reach, axis=None) <= largest:
            within = reach <= largest
        paid *= error  # in place: at 10^5 elements fresh memory costs more than arithmetic
        paid += self.arithmetic.eta
        if bar is not None:
            paid += bar
        if within is None:
            return self.like(value, paid)
        result = self.like(value, np.where(within, paid, np.inf))
        result.beyond = None if sum_of_many else paid
        return result

    def granted(self, ufunc: np.ufunc) -> float:
        ulps = TABLE[ufunc].ulps
        if self.arithmetic.ulps:
            ulps = max(ulps, self.arithmetic.ulps.get(ufunc.__name__, 0.0))
        return 2 * ulps * self.arithmetic.u

    def _smooth(self, ufunc: np.ufunc, xs: list[Values], bars: list[Values | None]) -> Bar:
        """First order everywhere; in coarse arithmetic also the ends of the interval."""
        value = ufunc(*xs)
        bar: Values | None = None
        for i, (derivative, b) in enumerate(zip(TABLE[ufunc].derivatives, bars, strict=True)):
            if b is None:
                continue
            moved = np.where(b == 0, 0.0, np.abs(derivative(*xs, value)) * b)
            if self.arithmetic.coarse:
                for x in (xs[i] + b, xs[i] - b):
                    end = ufunc(*xs[:i], x, *xs[i + 1 :])
                    moved = np.maximum(moved, np.abs(end - value))
            bar = moved if bar is None else bar + moved
        return self.rounded(value, bar, self.granted(ufunc))

    def _exact(self, ufunc: np.ufunc, xs: list[Values], bars: list[Values | None]) -> Bar:
        """Whole-number arithmetic on indices: exact, or unknown where an argument is in doubt."""
        if any(np.asarray(x).dtype.kind == "f" for x in xs):
            raise TypeError(f"numpy.{ufunc.__name__} has no row in the table of primitives")
        value = ufunc(*xs)
        doubt = sum((np.where(b > 0, np.inf, 0.0) for b in bars if b is not None), np.zeros(()))
        return self.like(value, np.broadcast_to(doubt, value.shape))

    def _compare(self, ufunc: np.ufunc, xs: list[Values], bars: list[Values | None]) -> Any:
        """Plain booleans where the order is certain, else booleans with a bar of 1."""
        value = ufunc(*xs)
        reach = sum((b for b in bars if b is not None), np.zeros(()))
        if not self.arithmetic.ties and not np.any(reach):
            return value
        apart = np.abs(xs[0] - xs[1])
        uncertain = apart <= reach if self.arithmetic.ties else (apart <= reach) & (reach > 0)
        uncertain = np.broadcast_to(uncertain, value.shape)
        return self.like(value, uncertain.astype(np.float64)) if uncertain.any() else value

    def _logic(self, ufunc: np.ufunc, xs: list[Values], bars: list[Values | None]) -> Bar:
        value = ufunc(*xs)
        doubt = sum((b for b in bars if b is not None), np.zeros(()))
        return self.like(value, np.minimum(np.broadcast_to(doubt, value.shape), 1.0))

    # sums

    def contract(self, function: Callable[..., Any], operands: Sequence[Any], terms: int) -> Bar:
        xs = [self.lift(x) for x in operands]
        value = np.asarray(function(*(x.value for x in xs)))
        sizes = [np.abs(x.value) for x in xs]
        bar = np.asarray(function(*sizes)) * self.arithmetic.sum_error(terms)
        for i, x in enumerate(xs):
            if x.companion is not None:
                # telescoping: the factors before with their bars, those after without
                reach = [s if y.companion is None else s + y.companion
                         for s, y in zip(sizes[:i], xs, strict=False)]  # fmt: skip
                bar = bar + function(*reach, x.companion, *sizes[i + 1 :])
        bar = bar + terms * self.arithmetic.eta
        return self.rounded(value, bar, self._after_sum, sum_of_many=True)

    @property
    def _after_sum(self) -> float:
        """A sum in a wider format is rounded once more, to a primitive's."""
        wider = self.arithmetic.sums.precision > self.arithmetic.primitive.precision
        return self.arithmetic.u if wider else 0.0

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        terms = count(self.shape, axis)
        value = np.sum(self.value, axis=axis, keepdims=keepdims)
        bar = None
        if self.companion is not None:
            bar = np.asarray(np.sum(self.companion, axis=axis, keepdims=keepdims))
        if terms <= 1:
            return self.like(np.asarray(value), bar)
        paid = np.sum(np.abs(self.value), axis=axis, keepdims=keepdims)
        paid = paid * self.arithmetic.sum_error(terms - 1)
        paid = paid if bar is None else paid + bar
        return self.rounded(np.asarray(value), paid, self._after_sum, sum_of_many=True)

    # order: max, min and what they select are 1-Lipschitz, so their bar is that of a candidate

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        function = np.max if sign > 0 else np.min
        value = np.asarray(function(self.value, axis=axis, keepdims=keepdims))
        if self.companion is None:
            return self.like(value)
        near = self._candidates(sign, axis)
        bar = np.max(np.where(near, self.companion, 0.0), axis=axis, keepdims=keepdims, initial=0)
        return self.like(value, np.asarray(bar))

    def _candidates(self, sign: int, axis: Any) -> Values:
        """Which elements may be the extremum."""
        bar = self.full_companion()
        x = sign * self.value
        certain = np.max(x - bar, axis=axis, keepdims=True, initial=-np.inf)
        return x + bar >= certain

    def argument(self, sign: int, axis: Any, keepdims: bool) -> Any:
        index = super().argument(sign, axis, keepdims)
        if self.companion is None and not self.arithmetic.ties:
            return index
        rivals = self._candidates(sign, axis)
        several = np.sum(rivals, axis=axis, keepdims=keepdims) > 1
        if not several.any():
            return index
        return Choice(index, np.where(several, np.inf, 0.0), rivals, arithmetic=self.arithmetic)

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        a, b = self.lift(chosen), self.lift(other)
        certain = condition.value if isinstance(condition, Tracked) else condition
        value: Values = np.where(certain, a.value, b.value)
        doubt = condition.companion if isinstance(condition, Tracked) else None
        if a.companion is None and b.companion is None and doubt is None:
            return self.like(value)
        one, two = a.full_companion(), b.full_companion()
        bar: Values = np.where(certain, one, two)
        if doubt is not None:
            apart = np.abs(a.value - b.value)
            bar = np.where(doubt > 0, apart + np.maximum(one, two), bar)
        whole = bar if bar.shape == value.shape else np.broadcast_to(bar, value.shape).copy()
        return self.like(value, whole)

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
        return super().__array_function__(function, types, args, kwargs)


class Choice(Bar):
    """The index of an extremum that has rivals: which one is chosen is in doubt."""

    __slots__ = ("rivals",)

    def __init__(
        self, value: Values, bar: Values | None, rivals: Values, *, arithmetic: Arithmetic
    ) -> None:
        super().__init__(value, bar, arithmetic=arithmetic)
        self.rivals = rivals

    def where_in_doubt(self, axis: int) -> Values:
        """The rivals of those choices that are in doubt, in the shape of the array chosen from."""
        several = np.sum(self.rivals, axis=axis, keepdims=True) > 1
        return self.rivals & several


def _put_choice(target: Bar, index: Choice, source: Any, axis: int) -> None:
    """Any rival may get the value, or a part of it (a subgradient): between 0 and the value."""
    source = target.lift(source)
    np.put_along_axis(target.value, index.value, source.value, axis)
    bar = target.full_companion()
    np.put_along_axis(bar, index.value, source.full_companion(), axis)
    reach = np.abs(source.value) + source.full_companion()
    target.companion = np.where(index.where_in_doubt(axis), reach, bar)


def _take_choice(kind: Bar, array: Any, index: Choice, axis: int) -> Bar:
    array = kind.lift(array)
    value = np.take_along_axis(array.value, index.value, axis)
    bar = array.full_companion()
    apart = np.abs(array.value - value) + bar
    rival = np.max(np.where(index.rivals, apart, 0.0), axis=axis, keepdims=True)
    return kind.like(value, np.maximum(np.take_along_axis(bar, index.value, axis), rival))
