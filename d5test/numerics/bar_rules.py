"""How elementwise functions carry a bar along.

A rule is `rule(context, ufunc, values, bars)`: plain arrays, a bar of `None` where the value is
exact; the context makes the result and knows the arithmetic. A bar of zero is an exact element,
which stays exact on an infinite slope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from d5test.numerics.arithmetic import Payment
from d5test.numerics.elementary import COMPARISONS, LOGIC, STEPS, TABLE, no_row
from d5test.numerics.tracked import Values

if TYPE_CHECKING:
    from d5test.numerics.bars import Bar

Rule = Callable[["Bar", Any, list[Values], list[Values | None]], Any]
BY_TWO = 1.5
"""What x log2 e errs by, in units of u |x|: 1 for the product, 0.47 at most for log2 e, which is
rounded to one of the four formats. Kernels of attention compute e^(x - m) so; Exp does not."""
LONGEST = 1024.0
"""An |x| beyond which e^x is 0 or infinite in every format."""


def exact(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    """Whole-number arithmetic on indices: exact, or unknown where an argument is in doubt."""
    if any(x.dtype.kind == "f" for x in xs):
        raise no_row(ufunc)
    value = ufunc(*xs)
    doubt = sum((np.where(b > 0, np.inf, 0.0) for b in bars if b is not None), np.zeros(()))
    return self.like(value, np.broadcast_to(doubt, value.shape))


def _unchanged(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (b,) = bars
    return self.like(ufunc(*xs), None if b is None else b.copy())  # either may be written to


def _sum_of_two(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    return self.rounded(ufunc(*xs), _total(*bars), self.arithmetic.granted[ufunc])


def _multiply(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x, y), (bx, by) = xs, bars
    if any(b is not None and a.dtype.kind == "b" for a, b in zip(xs, bars, strict=True)):
        return _gated(self, xs, bars)
    value, payment = x * y, self.arithmetic.granted[ufunc]
    if bx is None or by is None:
        moved = [_size(a) * b for a, b in ((y, bx), (x, by)) if b is not None]
        return self.rounded(value, moved[0] if moved else None, payment)
    size = _size(y)
    other = size if x is y else _size(x)
    if not payment.flushed:  # |x| |y| error instead of |value| error: one pass fewer
        paid = (size * payment.error + by) * other + (size + by) * bx + payment.eta
        if in_range(paid, payment):
            return self.like(value, paid)
    return self.rounded(value, (size + by) * bx + other * by, payment)


def _gated(self: Bar, xs: list[Values], bars: list[Values | None]) -> Bar:
    """A product with a boolean in doubt: all from nothing to the other factor."""
    gate = 0 if bars[0] is not None and xs[0].dtype.kind == "b" else 1
    doubt, factor = bars[gate], self.like(xs[1 - gate], bars[1 - gate])
    certain = _multiply(self, np.multiply, [xs[gate], factor.value], [None, factor.companion])
    return certain.or_between(doubt, factor, self.like(np.zeros(())))


def _square(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    return _multiply(self, ufunc, xs * 2, bars * 2)


def _divide(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x, y), (bx, by) = xs, bars
    value = x / y
    bar = bx
    if bx is not None or by is not None:
        least = _size(y) if by is None else _size(y) - by
        if _positive(least):
            bar = _total(bx, None if by is None else np.absolute(value) * by) / least
        else:
            bar = _total(bx, None if by is None else _moved(value, by))
            bar = np.where(bar == 0, 0.0, np.where(least > 0, bar / least, np.inf))
    return self.rounded(value, bar, self.arithmetic.granted[np.divide])


def _reciprocal(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    return _divide(self, np.divide, [np.ones(()), xs[0]], [None, bars[0]])


def _sqrt(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x,), (b,) = xs, bars
    value = np.sqrt(x)
    if b is not None:
        low = x - b
        if _positive(low):
            b = b / (value + np.sqrt(low))
        else:
            least = value + np.sqrt(np.maximum(low, 0.0))
            moved = np.where(least > 0, b / np.where(least > 0, least, 1.0), np.sqrt(b))
            b = np.where(b == 0, 0.0, np.where(x + b < 0, np.inf, moved))
    return self.rounded(value, b, self.arithmetic.granted[ufunc])


def _log(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x,), (b,) = xs, bars
    value = np.log(x)
    if b is not None:
        if _positive(x - b):
            b = -np.log1p(-b / x)
        else:
            b = np.where(b == 0, 0.0, -np.log1p(-np.minimum(b / x, 1.0)))
    return self.rounded(value, b, self.arithmetic.granted[ufunc])


def _smooth(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    """First order everywhere; in coarse arithmetic also the ends of the interval."""
    value = ufunc(*xs)
    bar: Values | None = None
    for i, (derivative, b) in enumerate(zip(TABLE[ufunc].derivatives, bars, strict=True)):
        if b is None:
            continue
        moved = _moved(derivative(*xs, value), b)
        if self.arithmetic.coarse:
            for x in (xs[i] + b, xs[i] - b):
                end = ufunc(*xs[:i], x, *xs[i + 1 :])
                moved = np.maximum(moved, np.absolute(end - value))
        bar = _total(bar, moved)
    return self.rounded(value, bar, self.arithmetic.granted[ufunc])


def _exponential(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    """e^x, of an x that was computed also as 2^(x log2 e)."""
    (x,), (b,) = xs, bars
    if b is not None:
        b = b + BY_TWO * self.arithmetic.u * np.minimum(np.absolute(x), LONGEST)
    return _smooth(self, ufunc, xs, [b])


def _logistic(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    """1 / (1 + exp(-x)), as ONNX has it; one that is computed otherwise is an error model."""
    y: Bar = 1 / (1 + np.exp(-self.like(xs[0], bars[0])))
    absolute = 2 * self.arithmetic.u * self.arithmetic.absolute.get(ufunc.__name__, 0.0)
    return y.like(y.value, y.full_companion() + absolute) if absolute else y


def _sign(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x,), (b,) = xs, bars
    value = np.sign(x)
    uncertain = _uncertain(self, np.absolute(x), b)
    if not uncertain.any():
        return self.like(value)
    return self.like(np.where(uncertain, 0.0, value), uncertain.astype(np.float64))


def _larger(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    value = ufunc(*xs)
    if bars[0] is None and bars[1] is None:
        return self.like(value)
    sign = 1 if ufunc is np.maximum else -1
    x, y = sign * xs[0], sign * xs[1]
    bx, by = (np.zeros(()) if b is None else b for b in bars)
    bar = np.maximum(np.where(x + bx >= y - by, bx, 0.0), np.where(y + by >= x - bx, by, 0.0))
    return self.like(value, np.broadcast_to(bar, value.shape).copy())


def _step(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x,), (b,) = xs, bars
    value = ufunc(x)
    if b is None:
        return self.like(value)
    return self.like(value, np.maximum(ufunc(x + b) - value, value - ufunc(x - b)))


def _compare(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Any:
    """Plain booleans where the order is certain, else booleans with a bar of 1.

    An argument that may be read as zero reaches as far.
    """
    value = ufunc(*xs)
    reach = _total(*bars)
    if self.arithmetic.flushes:
        for size in map(np.absolute, xs):
            tiny = (size > 0) & (size < self.arithmetic.primitive.smallest_normal)
            if tiny.any():
                reach = _total(reach, np.where(tiny, size, 0.0))
    if reach is None and not self.arithmetic.ties:
        return value
    uncertain = _uncertain(self, np.absolute(xs[0] - xs[1]), reach)
    if not uncertain.any():
        return value
    return self.like(value, np.broadcast_to(uncertain, value.shape).astype(np.float64))


def _logic(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    """In doubt is what differs between all doubts being true and all being false."""
    doubts = [np.zeros((), bool) if b is None else b > 0 for b in bars]
    least = ufunc(*(x & ~d for x, d in zip(xs, doubts, strict=True)))
    most = ufunc(*(x | d for x, d in zip(xs, doubts, strict=True)))
    return self.like(ufunc(*xs), (least != most).astype(np.float64))


def in_range(paid: Values, payment: Payment) -> bool:
    """Whether bars that have `paid` are so small that no result can overflow."""
    return bool(np.vdot(paid, paid) <= payment.ample)


def _size(x: Values) -> Values:
    """|x|. NumPy takes longer over an array of no axes than Python, and makes a number of it."""
    return np.absolute(x) if x.ndim else np.asarray(abs(x.item()))


def _total(one: Values | None, two: Values | None) -> Values | None:
    """The sum of the bars that there are."""
    if one is None:
        return two
    return one if two is None else one + two


def _positive(x: Values) -> bool:
    """Whether every element is; not a number is not."""
    return bool(np.count_nonzero(x > 0) == x.size if x.ndim else x.item() > 0)


def _moved(slope: Values, bar: Values) -> Values:
    """|slope| bar; an infinite slope does not move an exact element."""
    moved = np.absolute(slope) * bar
    # one product tells whether all is finite, or so large that it is worth a look
    if np.vdot(moved, moved) < np.inf:
        return moved
    return np.where(bar == 0, 0.0, moved)


def _uncertain(self: Bar, apart: Values, reach: Values | None) -> Values:
    """Whether numbers that are `apart` may change their order."""
    if reach is None:
        return apart <= 0 if self.arithmetic.ties else np.zeros((), bool)
    return apart <= reach if self.arithmetic.ties else (apart <= reach) & (reach > 0)


RULES: dict[Any, Rule] = {
    **dict.fromkeys(TABLE, _smooth),
    **dict.fromkeys(COMPARISONS, _compare),
    **dict.fromkeys(LOGIC, _logic),
    **dict.fromkeys(STEPS, _step),
    np.positive: _unchanged,
    np.negative: _unchanged,
    np.absolute: _unchanged,
    np.add: _sum_of_two,
    np.subtract: _sum_of_two,
    np.multiply: _multiply,
    np.square: _square,
    np.divide: _divide,
    np.reciprocal: _reciprocal,
    np.sqrt: _sqrt,
    np.exp: _exponential,
    np.log: _log,
    special.expit: _logistic,
    np.sign: _sign,
    np.maximum: _larger,
    np.minimum: _larger,
}
