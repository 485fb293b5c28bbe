"""The array protocol that bars, duals, noise and rounding share.

A tracked array is a value and perhaps a companion of the same shape (an error bound, a tangent).
Functions that only move elements are applied to both alike. What computes is the subclass's:

    ufunc(ufunc, arguments)          an elementwise function
    contract(function, operands, sizes)
                                     sums of products (matmul, einsum, ...) over axes of `sizes`
    reduce_sum, extremum, choose, select
                                     sums, max and min, argmax, where

`__array__` raises: a reference cannot lose the companion without anyone noticing.

Python's operators hand their ufunc straight to the array's rule. NumPy's `NDArrayOperatorsMixin`
means the same, by way of NumPy's dispatch: at the sizes that a suite draws, that way costs as much
as the arithmetic.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from operator import methodcaller
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from d5test.numerics.chains import Chain
from d5test.numerics.elementary import CLASSIFICATIONS
from d5test.numerics.functions import REDUCTIONS, RULES, count, matmul, normal_axes

Values = Any
"""A plain array of values: float64, or integers and booleans where the reference computes them."""

MOVES = frozenset(
    {np.reshape, np.transpose, np.moveaxis, np.swapaxes, np.expand_dims, np.squeeze, np.ravel,
     np.broadcast_to, np.take, np.take_along_axis, np.roll, np.flip, np.repeat, np.tile, np.tril,
     np.triu, np.diagonal, np.copy, np.rot90, sliding_window_view}
)  # fmt: skip
SPLITS = frozenset({np.split, np.array_split})
JOINS = frozenset({np.concatenate, np.stack})
INSTEAD: Mapping[str, str] = {
    "cumulative_sum": "numpy.cumsum(x, axis)",
    "cumprod": "a loop along the axis",
    "norm": "numpy.sqrt((x * x).sum(axis))",
    "std": "numpy.sqrt(x.var(axis))",
    "average": "(w * x).sum(axis) / w.sum(axis)",
    "inner": "numpy.matmul or numpy.einsum",
    "outer": "x[:, None] * y",
    "diff": "x[1:] - x[:-1]",
    "hstack": "numpy.concatenate",
    "vstack": "numpy.concatenate",
    "atleast_1d": "x.reshape(-1)",
}
"""What a reference writes in place of a function that has no rule here."""

Method = Callable[..., Any]


def in_doubt(key: Any) -> bool:
    """Whether an index, or one of several, is itself an array that may be off."""
    return isinstance(key, Tracked) or (isinstance(key, tuple) and any(map(in_doubt, key)))


def _rows(a: Any, index: Any, axis: int | None = None) -> Any:
    """`np.take` by an index that is in doubt."""
    if axis is None:
        return np.ravel(a)[index]
    front = np.moveaxis(a, axis, 0)[index]
    axis %= a.ndim
    return np.moveaxis(front, range(index.ndim), range(axis, axis + index.ndim))


def _binary(ufunc: np.ufunc) -> tuple[Method, Method, Method]:
    """x op y, y op x, and x op= y, which keeps the array and changes its elements."""

    def operator(self: Any, other: Any) -> Any:
        return self.ufunc(ufunc, (self, other))

    def reflected(self: Any, other: Any) -> Any:
        return self.ufunc(ufunc, (other, self))

    def in_place(self: Any, other: Any) -> Any:
        self[...] = self.ufunc(ufunc, (self, other))
        return self

    return operator, reflected, in_place


def _unary(ufunc: np.ufunc) -> Method:
    def operator(self: Any) -> Any:
        return self.ufunc(ufunc, (self,))

    return operator


def _movement(name: str) -> Method:
    """NumPy's method called `name`, which only moves elements, for value and companion."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.move(methodcaller(name, *args, **kwargs))

    return method


class Tracked:
    """A value with a companion (or none), on which reference code runs unchanged.

    While it is a sum of products, a subclass whose additions depend on that says so in `chain`.
    """

    __slots__ = ("chain", "companion", "value")
    __array_priority__ = 1000

    def __init__(self, value: Values, companion: Values | None = None) -> None:
        self.value = value
        self.companion = companion
        self.chain: Chain | None = None

    # what a subclass says

    def like(self, value: Values, companion: Values | None = None) -> Self:
        """An array of the same kind, with the same context."""
        return type(self)(value, companion)

    def ufunc(self, ufunc: np.ufunc, arguments: Sequence[Any]) -> Any:
        raise NotImplementedError

    def contract(
        self, function: Callable[..., Any], operands: Sequence[Any], sizes: tuple[int, ...]
    ) -> Any:
        raise NotImplementedError

    def in_any_order(
        self, result: Any, terms: Sequence[str], right: str, factors: Sequence[Any]
    ) -> Any:
        """A sum of products of several factors, of which any may be multiplied first."""
        return result

    def multiplied(self, result: Any, factors: Any) -> Any:
        """The product along the first axis of `factors`, which may be taken in any order."""
        return result

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        raise NotImplementedError

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        """The largest (`sign` 1) or smallest (-1) along `axis`."""
        raise NotImplementedError

    def argument(self, sign: int, axis: Any, keepdims: bool) -> Any:
        """Where the largest or smallest is."""
        function = np.argmax if sign > 0 else np.argmin
        return function(self.value, axis=axis, keepdims=keepdims)

    def argsort(self, axis: int = -1, kind: Any = None, *, stable: Any = None) -> Any:
        """Where each element comes from when they are sorted; equal ones keep their order."""
        return np.argsort(self.value, axis=axis, kind="stable")

    def sorted(self, axis: int = -1) -> Any:
        """The elements in their order."""
        return np.take_along_axis(self, self.argsort(axis), axis)

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        raise NotImplementedError

    def size_of_terms(self) -> Values:
        """The size of each element as a term of a sum."""
        return np.absolute(self.value)

    def as_chain(self) -> Chain:
        """The sum of products that this is; anything else is one term."""
        return self.chain or Chain(1, self.size_of_terms)

    # shape and memory

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} has no plain array: its companion would be lost")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def ndim(self) -> int:
        return int(self.value.ndim)

    @property
    def size(self) -> int:
        return int(self.value.size)

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def T(self) -> Self:  # noqa: N802 - NumPy's name
        transposed: Self = self.transpose()
        return transposed

    def __len__(self) -> int:
        return len(self.value)

    def __index__(self) -> int:
        """A whole number that is known: how many elements there are."""
        if self.companion is not None:
            raise TypeError("a reference may not count by what is computed")
        return int(self.value.__index__())

    def __bool__(self) -> bool:
        raise TypeError("a reference may not branch on what is computed: use numpy.where")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r}, {self.companion!r})"

    def move(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Apply a function that only moves elements to value and companion."""
        companion = self.companion
        moved = self.like(
            function(self.value, *args, **kwargs),
            None if companion is None else function(companion, *args, **kwargs),
        )
        if self.chain is not None:
            moved.chain = self.chain.moved(lambda size: function(size, *args, **kwargs))
        return moved

    def lift(self, other: Any) -> Any:
        """`other` as an array of this kind; a plain array has no companion yet."""
        return other if isinstance(other, Tracked) else self.like(np.asarray(other))

    def zeros(self, shape: tuple[int, ...]) -> Self:
        """An array of zeros of the same kind, to be written into."""
        return self.like(np.zeros(shape), np.zeros(shape))

    def full_companion(self) -> Values:
        """The companion as an array, zeros if there is none."""
        return np.zeros(np.shape(self.value)) if self.companion is None else self.companion

    def __getitem__(self, key: Any) -> Any:
        if in_doubt(key):
            return self.chosen(key)
        return self.move(lambda elements: np.asarray(elements[key]))

    def chosen(self, key: Any) -> Any:
        """The rows that an index names which may be in doubt, as that of an order is."""
        index, *rest = key if isinstance(key, tuple) else (key,)
        if not isinstance(index, Tracked) or in_doubt(tuple(rest)):
            raise TypeError("an order that is in doubt chooses by numpy.take_along_axis")
        rows, row = self.shape[0], self.shape[1:]
        every = np.broadcast_to(np.reshape(self, (1, rows, -1)), (index.size, rows, prod(row)))
        which = np.broadcast_to(np.reshape(index, (-1, 1, 1)), (index.size, 1, prod(row)))
        taken = np.reshape(np.take_along_axis(every, which, 1), (*index.shape, *row))
        return taken[(slice(None),) * index.ndim + tuple(rest)]

    def __setitem__(self, key: Any, other: Any) -> None:
        other = self.lift(other)
        self.value[key] = other.value
        if other.companion is not None and self.companion is None:
            self.companion = self.full_companion()
        if self.companion is not None:
            self.companion[key] = 0.0 if other.companion is None else other.companion
        if self.chain or other.chain:
            terms = max(self.as_chain().terms, other.as_chain().terms)
            self.chain = Chain(terms, self.size_of_terms)

    def astype(self, dtype: Any) -> Self:
        """Whole numbers in an integer dtype; others as they are, in float64."""
        whole = np.dtype(dtype).kind in "iu"
        return self.like(self.value.astype(dtype), self.companion) if whole else self

    reshape, transpose, swapaxes = map(_movement, ("reshape", "transpose", "swapaxes"))
    squeeze, ravel, repeat, copy = map(_movement, ("squeeze", "ravel", "repeat", "copy"))

    # computation, as operators

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

    __lt__ = _binary(np.less)[0]
    __le__ = _binary(np.less_equal)[0]
    __gt__ = _binary(np.greater)[0]
    __ge__ = _binary(np.greater_equal)[0]
    __eq__ = _binary(np.equal)[0]
    __ne__ = _binary(np.not_equal)[0]
    __hash__ = None  # type: ignore[assignment]

    __neg__ = _unary(np.negative)
    __pos__ = _unary(np.positive)
    __abs__ = _unary(np.absolute)
    __invert__ = _unary(np.invert)

    # computation, as methods

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self.reduce_sum(axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """The sum of x / n: so each term may be rounded, or their sum, which is no larger."""
        return (self / float(count(self.shape, axis))).reduce_sum(axis, keepdims)

    def var(self, axis: Any = None, keepdims: bool = False, ddof: int = 0) -> Any:
        centred = self - self.mean(axis, keepdims=True)
        return (centred * centred).sum(axis, keepdims) / (count(self.shape, axis) - ddof)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self.extremum(1, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self.extremum(-1, axis, keepdims)

    def argmax(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self.argument(1, axis, keepdims)

    def argmin(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self.argument(-1, axis, keepdims)

    def clip(self, low: Any = None, high: Any = None) -> Any:
        result = self if low is None else np.maximum(self, low)
        return result if high is None else np.minimum(result, high)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Any:
        axes = normal_axes(self.ndim, axis)
        flat = self.move(np.moveaxis, axes, range(len(axes)))
        rest = flat.shape[len(axes) :]
        factors = flat.reshape((prod(flat.shape[: len(axes)]), *rest))
        result = self.like(np.ones(rest))
        for i in range(len(factors)):
            result = result * factors[i]
        result = self.multiplied(result, factors)
        return result.move(np.expand_dims, axes) if keepdims else result

    def cumsum(self, axis: Any = None) -> Any:
        """Each partial sum in an order of its own, as a parallel scan has it."""
        x = self.ravel() if axis is None else self.move(np.moveaxis, axis, 0)
        result = np.zeros_like(x)
        for i in range(len(x)):
            result[i] = x[: i + 1].sum(0)
        return result if axis is None else result.move(np.moveaxis, 0, axis)

    def accumulated(self) -> Any:
        """`np.add.accumulate` along the first axis: partial sums by additions."""
        result = np.zeros_like(self)
        for i in range(len(self)):
            result[i] = self[i] if i == 0 else result[i - 1] + self[i]
        return result

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if method == "at":
            target, index, addend = inputs
            if ufunc is not np.add or not isinstance(target, Tracked):
                raise TypeError(f"{type(self).__name__}: only numpy.add.at on a tracked array")
            return self.scatter_add(target, index, self.lift(addend))
        if method == "accumulate" and ufunc is np.add and kwargs.get("axis", 0) == 0:
            return inputs[0].accumulated()
        if method == "reduce" and ufunc in REDUCTIONS:
            axis, keepdims = kwargs.get("axis", 0), kwargs.get("keepdims", False)
            return REDUCTIONS[ufunc](inputs[0], axis, keepdims)
        if method != "__call__" or kwargs:
            called = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise self._no_rule(called, kwargs)
        if ufunc in CLASSIFICATIONS:
            return ufunc(*(x.value if isinstance(x, Tracked) else x for x in inputs))
        result = matmul(self, *inputs) if ufunc is np.matmul else self.ufunc(ufunc, inputs)
        if out is None:
            return result
        (target,) = out
        target[...] = result
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.take and in_doubt(args[1]):
            return _rows(*args, **kwargs)
        if function in MOVES:
            return args[0].move(function, *args[1:], **kwargs)
        if function in SPLITS:
            return self._split(function, *args, **kwargs)
        if function in JOINS:
            return self._join(function, *args, **kwargs)
        rule = RULES.get(function)
        if rule is None:
            raise self._no_rule(function.__name__)
        return rule(self, *args, **kwargs)

    def _no_rule(self, called: str, options: Collection[str] = ()) -> TypeError:
        """The error for a function of NumPy that is not known here, with what may be used."""
        named = f"numpy.{called}" + (f" with {', '.join(options)}" if options else "")
        instead = INSTEAD.get(called, "one of those that docs/extending.md lists")
        return TypeError(
            f"a reference may not call {named}, for which {type(self).__name__} has no rule: "
            f"use {instead}"
        )

    def scatter_add(self, target: Any, index: Any, addend: Any) -> None:
        """`np.add.at`, element after element as far as rounding is concerned."""
        np.add.at(target.value, index, addend.value)
        if addend.companion is not None:
            target.companion = target.full_companion()
            np.add.at(target.companion, index, addend.companion)

    def _split(self, function: Any, array: Any, sections: Any, axis: int = 0) -> list[Any]:
        values = function(array.value, sections, axis)
        companions: Any = [None] * len(values)
        if array.companion is not None:
            companions = function(array.companion, sections, axis)
        parts = [array.like(v, c) for v, c in zip(values, companions, strict=True)]
        if array.chain is not None:
            for k, part in enumerate(parts):
                part.chain = array.chain.moved(lambda size, k=k: function(size, sections, axis)[k])
        return parts

    def _join(self, function: Any, arrays: Any, axis: int = 0) -> Any:
        lifted = [self.lift(a) for a in arrays]
        value = function([a.value for a in lifted], axis=axis)
        if all(a.companion is None for a in lifted):
            return self.like(value)
        return self.like(value, function([a.full_companion() for a in lifted], axis=axis))


def as_array(x: Any) -> Any:
    """An array, tracked or plain, of what a function returned."""
    return x if isinstance(x, Tracked) else np.asarray(x)


def zeros_of(like: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of the same kind."""
    return like.zeros(shape) if isinstance(like, Tracked) else np.zeros(shape)


def times(slope: Any, moved: Any) -> Any:
    """Their product, without a rounding where the slope is 1 or -1."""
    if isinstance(slope, float) and abs(slope) == 1:
        return moved if slope > 0 else -moved
    return slope * moved


def plain(x: Any) -> Any:
    """The values alone, however often they are tracked."""
    while isinstance(x, Tracked):
        x = x.value
    return x


def largest(x: Any) -> float:
    """The largest magnitude of the finite elements of an array, tracked or not."""
    size = np.absolute(plain(x))
    return float(np.max(size, where=np.isfinite(size), initial=0.0))
