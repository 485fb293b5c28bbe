"""How single functions carry a bar along, where a derivative at the value is not enough.

A rule is `rule(context, ufunc, values, bars)`: plain arrays, a bar of `None` where the value is
exact; the context makes the result and knows the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from d5test.numerics.elementary import STEPS
from d5test.numerics.tracked import Values

if TYPE_CHECKING:
    from d5test.numerics.bars import Bar


def _unchanged(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    return self.like(ufunc(*xs), bars[0])


def _sum_of_two(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    value = ufunc(*xs)
    known = [b for b in bars if b is not None]
    bar = None if not known else known[0] if len(known) == 1 else known[0] + known[1]
    return self.rounded(value, bar, self.granted(ufunc))


def _multiply(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x, y), (bx, by) = xs, bars
    value = x * y
    bar = None
    if bx is not None:
        bar = np.abs(y) * bx if by is None else (np.abs(y) + by) * bx
    if by is not None:
        bar = np.abs(x) * by if bar is None else bar + np.abs(x) * by
    return self.rounded(value, bar, self.granted(ufunc))


def _square(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    return _multiply(self, ufunc, xs * 2, bars * 2)


def _divide(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x, y), (bx, by) = xs, bars
    value = x / y
    bar = None if bx is None else bx
    if by is not None:
        moved = np.where(by == 0, 0.0, np.abs(value) * by)
        bar = moved if bar is None else bar + moved
    if bar is not None:
        least = np.abs(y) if by is None else np.abs(y) - by
        bar = np.where(bar == 0, 0.0, np.where(least > 0, bar / least, np.inf))
    return self.rounded(value, bar, self.granted(np.divide))


def _reciprocal(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    return _divide(self, np.divide, [np.ones(()), xs[0]], [None, bars[0]])


def _sqrt(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x,), (b,) = xs, bars
    value = np.sqrt(x)
    if b is not None:
        least = value + np.sqrt(np.maximum(x - b, 0.0))
        moved = np.where(least > 0, b / np.where(least > 0, least, 1.0), np.sqrt(b))
        b = np.where(b == 0, 0.0, np.where(x + b < 0, np.inf, moved))
    return self.rounded(value, b, self.granted(ufunc))


def _log(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x,), (b,) = xs, bars
    value = np.log(x)
    if b is not None:
        share = np.minimum(b / x, 1.0)
        b = np.where(b == 0, 0.0, -np.log1p(-share))
    return self.rounded(value, b, self.granted(ufunc))


def _sign(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x,), (b,) = xs, bars
    value = np.sign(x)
    reach = np.zeros(()) if b is None else b
    uncertain = np.abs(x) <= reach if self.arithmetic.ties else (np.abs(x) <= reach) & (reach > 0)
    if not np.any(uncertain):
        return self.like(value)
    return self.like(value, np.where(uncertain, 1 + np.abs(value), 0.0))


def _larger(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    value = ufunc(*xs)
    if bars[0] is None and bars[1] is None:
        return self.like(value)
    sign = 1 if ufunc is np.maximum else -1
    x, y = sign * xs[0], sign * xs[1]
    bx, by = (np.zeros(()) if b is None else b for b in bars)
    bar = np.maximum(np.where(x + bx >= y - by, bx, 0.0), np.where(y + by >= x - bx, by, 0.0))
    return self.like(value, np.broadcast_to(bar, value.shape))


def _step(self: Bar, ufunc: Any, xs: list[Values], bars: list[Values | None]) -> Bar:
    (x,), (b,) = xs, bars
    value = ufunc(x)
    if b is None:
        return self.like(value)
    return self.like(value, np.maximum(ufunc(x + b) - value, value - ufunc(x - b)))


RULES: dict[Any, Callable[..., Any]] = {
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
    np.log: _log,
    np.sign: _sign,
    np.maximum: _larger,
    np.minimum: _larger,
    **dict.fromkeys(STEPS, _step),
}
