"""The array protocol that bars, duals, noise and rounding share.

A tracked array is a value and perhaps a companion of the same shape (an error bound, a tangent).
Functions that only move elements are applied to both alike. What computes is the subclass's:

    ufunc(ufunc, arguments)          an elementwise function
    contract(function, operands, sizes)
                                     sums of products (matmul, einsum, ...) over axes of `sizes`
    reduce_sum, extremum, choose, select
                                     sums, max and min, argmax, where

`__array__` raises: a reference cannot lose the companion without anyone noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from d5test.numerics.elementary import CLASSIFICATIONS
from d5test.numerics.functions import REDUCTIONS, RULES, count, matmul, normal_axes
from d5test.numerics.operators import Operators

Values = Any
"""A plain array of values: float64, or integers and booleans where the reference computes them."""

MOVES = frozenset(
    {np.reshape, np.transpose, np.moveaxis, np.swapaxes, np.expand_dims, np.squeeze, np.ravel,
     np.broadcast_to, np.take, np.take_along_axis, np.roll, np.flip, np.repeat, np.tile, np.tril,
     np.triu, np.diagonal, np.copy, np.rot90, sliding_window_view}
)  # fmt: skip
SPLITS = frozenset({np.split, np.array_split})
JOINS = frozenset({np.concatenate, np.stack})
INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "add.accumulate": "numpy.cumsum(x, axis)",
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
)
"""What a reference writes in place of a function that has no rule here."""


class Tracked(Operators):
    """A value with a companion (or none), on which reference code runs unchanged."""

    __slots__ = ("companion", "value")
    __array_priority__ = 1000

    def __init__(self, value: Values, companion: Values | None = None) -> None:
        self.value = value
        self.companion = companion

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

    def reduce_sum(self, axis: Any, keepdims: bool) -> Any:
        raise NotImplementedError

    def extremum(self, sign: int, axis: Any, keepdims: bool) -> Any:
        """The largest (`sign` 1) or smallest (-1) along `axis`."""
        raise NotImplementedError

    def argument(self, sign: int, axis: Any, keepdims: bool) -> Any:
        """Where the largest or smallest is."""
        function = np.argmax if sign > 0 else np.argmin
        return function(self.value, axis=axis, keepdims=keepdims)

    def select(self, condition: Any, chosen: Any, other: Any) -> Any:
        raise NotImplementedError

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
        transposed: Self = self._moved("transpose")
        return transposed

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r}, {self.companion!r})"

    def move(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Apply a function that only moves elements to value and companion."""
        companion = self.companion
        return self.like(
            function(self.value, *args, **kwargs),
            None if companion is None else function(companion, *args, **kwargs),
        )

    def lift(self, other: Any) -> Any:
        """`other` as an array of this kind; a plain array has no companion yet."""
        return other if isinstance(other, Tracked) else self.like(np.asarray(other))

    def full_companion(self) -> Values:
        """The companion as an array, zeros if there is none."""
        return np.zeros(np.shape(self.value)) if self.companion is None else self.companion

    def __getitem__(self, key: Any) -> Any:
        companion = self.companion
        return self.like(
            np.asarray(self.value[key]),
            None if companion is None else np.asarray(companion[key]),
        )

    def __setitem__(self, key: Any, other: Any) -> None:
        other = self.lift(other)
        self.value[key] = other.value
        if other.companion is not None and self.companion is None:
            self.companion = np.zeros(self.shape)
        if self.companion is not None:
            self.companion[key] = 0.0 if other.companion is None else other.companion

    def reshape(self, *shape: Any) -> Any:
        return self._moved("reshape", *shape)

    def transpose(self, *axes: Any) -> Any:
        return self._moved("transpose", *axes)

    def swapaxes(self, one: int, two: int) -> Any:
        return self._moved("swapaxes", one, two)

    def squeeze(self, axis: Any = None) -> Any:
        return self._moved("squeeze", axis)

    def ravel(self) -> Any:
        return self._moved("ravel")

    def copy(self) -> Any:
        return self._moved("copy")

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        return self._moved("repeat", repeats, axis)

    def _moved(self, method: str, *args: Any) -> Any:
        """`move` by a method of NumPy's array."""
        companion = self.companion
        return self.like(
            getattr(self.value, method)(*args),
            None if companion is None else getattr(companion, method)(*args),
        )

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
        factors = flat.reshape((-1, *rest))
        result = self.like(np.ones(rest))
        for i in range(len(factors)):
            result = result * factors[i]
        return result.move(np.expand_dims, axes) if keepdims else result

    def cumsum(self, axis: Any = None) -> Any:
        x = self.ravel() if axis is None else self.move(np.moveaxis, axis, 0)
        result = np.zeros_like(x)
        for i in range(len(x)):
            result[i] = x[i] if i == 0 else result[i - 1] + x[i]
        return result if axis is None else result.move(np.moveaxis, 0, axis)

    # NumPy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if method == "at":
            return self.add_at(ufunc, *inputs)
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

    def _no_rule(
        self, called: str, options: Mapping[str, Any] = MappingProxyType({})
    ) -> TypeError:
        """The error for a function of NumPy that is not known here, with what may be used."""
        named = f"numpy.{called}" + (f" with {', '.join(options)}" if options else "")
        instead = INSTEAD.get(called, "one of those that docs/extending.md lists")
        return TypeError(
            f"a reference may not call {named}, for which {type(self).__name__} has no rule: "
            f"use {instead}"
        )

    def add_at(self, ufunc: np.ufunc, target: Any, index: Any, addend: Any) -> None:
        """`np.add.at`, element after element as far as rounding is concerned."""
        if ufunc is not np.add or not isinstance(target, Tracked):
            raise TypeError(f"{type(self).__name__}: only numpy.add.at on a tracked array")
        self.scatter_add(target, index, self.lift(addend))

    def scatter_add(self, target: Any, index: Any, addend: Any) -> None:
        np.add.at(target.value, index, addend.value)
        if addend.companion is not None:
            if target.companion is None:
                target.companion = np.zeros(target.shape)
            np.add.at(target.companion, index, addend.companion)

    def _split(self, function: Any, array: Any, sections: Any, axis: int = 0) -> list[Any]:
        values = function(array.value, sections, axis)
        if array.companion is None:
            return [array.like(v) for v in values]
        companions = function(array.companion, sections, axis)
        return [array.like(v, c) for v, c in zip(values, companions, strict=True)]

    def _join(self, function: Any, arrays: Any, axis: int = 0) -> Any:
        lifted = [self.lift(a) for a in arrays]
        value = function([a.value for a in lifted], axis=axis)
        if all(a.companion is None for a in lifted):
            return self.like(value)
        return self.like(value, function([a.full_companion() for a in lifted], axis=axis))
