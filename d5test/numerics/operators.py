"""Python's operators on tracked arrays: each is a ufunc, handed straight to the array's rule.

NumPy's `NDArrayOperatorsMixin` means the same, by way of NumPy's dispatch: at the sizes that a
suite draws, that way costs as much as the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from d5test.numerics.functions import matmul

Operator = Callable[[Any, Any], Any]


def _binary(ufunc: np.ufunc) -> tuple[Operator, Operator, Operator]:
    """x op y, y op x, and x op= y, which keeps the array and changes its elements."""

    def operator(self: Any, other: Any) -> Any:
        return self.ufunc(ufunc, (self, other))

    def reflected(self: Any, other: Any) -> Any:
        return self.ufunc(ufunc, (other, self))

    def in_place(self: Any, other: Any) -> Any:
        self[...] = self.ufunc(ufunc, (self, other))
        return self

    return operator, reflected, in_place


def _comparison(ufunc: np.ufunc) -> Operator:
    return _binary(ufunc)[0]


def _unary(ufunc: np.ufunc) -> Callable[[Any], Any]:
    def operator(self: Any) -> Any:
        return self.ufunc(ufunc, (self,))

    return operator


class Operators:
    """The operators of an array that has `ufunc(ufunc, arguments)`."""

    __slots__ = ()

    __add__, __radd__, __iadd__ = _binary(np.add)
    __sub__, __rsub__, __isub__ = _binary(np.subtract)
    __mul__, __rmul__, __imul__ = _binary(np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _binary(np.divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary(np.floor_divide)
    __mod__, __rmod__, __imod__ = _binary(np.remainder)
    __pow__, __rpow__, __ipow__ = _binary(np.power)
    __and__, __rand__, __iand__ = _binary(np.bitwise_and)
    __or__, __ror__, __ior__ = _binary(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = _binary(np.bitwise_xor)

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(self, other, self)

    __lt__ = _comparison(np.less)
    __le__ = _comparison(np.less_equal)
    __gt__ = _comparison(np.greater)
    __ge__ = _comparison(np.greater_equal)
    __eq__ = _comparison(np.equal)
    __ne__ = _comparison(np.not_equal)
    __hash__ = None  # type: ignore[assignment]

    __neg__ = _unary(np.negative)
    __pos__ = _unary(np.positive)
    __abs__ = _unary(np.absolute)
    __invert__ = _unary(np.invert)
