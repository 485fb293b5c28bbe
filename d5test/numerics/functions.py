"""How NumPy's functions are made of what a tracked array can do: sums, products, order, choice.

A rule is `rule(self, *arguments)`, with NumPy's own arguments; `self` is the array whose kind the
result has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from d5test.numerics.tracked import Tracked

PAIR = 2
"""Factors whose products can be taken in one order only."""


def count(shape: tuple[int, ...], axis: Any) -> int:
    """Elements along `axis` (`None`: all)."""
    return prod([shape[a] for a in normal_axes(len(shape), axis)])


def normal_axes(ndim: int, axis: Any) -> tuple[int, ...]:
    """`axis` as a tuple of axes counted from the front."""
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, (int, np.integer)) else axis
    return tuple([int(a) % max(ndim, 1) for a in axes])


def matmul(self: Any, a: Any, b: Any) -> Any:
    """`a @ b`, by the rule of `self` for sums of products."""
    return self.contract(np.matmul, (a, b), a.shape[-1:])


def _tensordot(self: Tracked, a: Any, b: Any, axes: Any = 2) -> Any:
    contracted = range(a.ndim - axes, a.ndim) if isinstance(axes, int) else axes[0]
    summed = tuple(a.shape[axis] for axis in contracted)
    return self.contract(lambda x, y: np.tensordot(x, y, axes), (a, b), summed)


def _einsum(self: Tracked, equation: str, *operands: Any) -> Any:
    left, _, right = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for labels, operand in zip(left.split(","), operands, strict=True):
        head, dots, tail = labels.partition("...")
        shape = np.shape(operand)
        named = [*zip(head, shape, strict=False)]
        if dots and tail:
            named += zip(tail, shape[-len(tail) :], strict=True)
        for label, size in named:  # one of size 1 is broadcast
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    if "->" not in equation:
        right = "".join(label for label in sizes if left.count(label) == 1)
    summed = tuple(size for label, size in sizes.items() if label not in right)
    result = self.contract(lambda *xs: np.einsum(equation, *xs), operands, summed)
    several = len(operands) > PAIR and "." not in equation
    return self.in_any_order(result, left.split(","), right, operands) if several else result


def overflowing(
    terms: Sequence[str], right: str, sizes: Sequence[Any], largest: float
) -> NDArray[np.bool_]:
    """Where a sum of products meets one of some of its factors that is more than `largest`.

    `terms` are the letters of the factors, whose magnitudes are `sizes`, and `right` those of the
    result. A partial product of some factors is summed over the letters that only they have.
    """
    length: dict[str, int] = {}
    for letter, n in zip("".join(terms), (n for x in sizes for n in x.shape), strict=True):
        length[letter] = max(n, length.get(letter, n)) if n else 0
    places = np.zeros(tuple(length[k] for k in right), bool)
    if prod(length.values()) * prod(float(x.max(initial=1)) for x in sizes) <= largest:
        return places
    for count in range(1, len(terms)):
        for first in combinations(range(len(terms)), count):
            rest = [i for i in range(len(terms)) if i not in first]
            letters = set().union(*(terms[i] for i in first))
            kept = "".join(sorted(letters & {*right, *"".join(terms[i] for i in rest)}))
            equation = f"{','.join(terms[i] for i in first)}->{kept}"
            over = np.einsum(equation, *(sizes[i] for i in first)) > largest
            if over.any():
                ones = (np.ones_like(sizes[i]) for i in rest)
                equation = f"{','.join([kept, *(terms[i] for i in rest)])}->{right}"
                places |= np.einsum(equation, over.astype(float), *ones) > 0
    return places


def _pad(self: Tracked, x: Any, width: Any, mode: str = "constant", **options: Any) -> Any:
    value = np.pad(x.value, width, mode, **options)  # type: ignore[call-overload]
    if x.companion is None:
        return x.like(value)
    options.pop("constant_values", None)
    return x.like(value, np.pad(x.companion, width, mode, **options))  # type: ignore[call-overload]


def _full_like(
    self: Tracked, x: Any, fill: Any, dtype: Any = None, shape: Any = None, **_: Any
) -> Any:
    shape = np.shape(x) if shape is None else shape
    result = self.zeros(shape)
    result[...] = fill
    return result


def _copyto(self: Tracked, target: Any, source: Any) -> None:
    target[...] = source


def _put_along_axis(self: Tracked, target: Any, index: Any, source: Any, axis: int) -> None:
    source = target.lift(source)
    np.put_along_axis(target.value, index, source.value, axis)
    if source.companion is not None:
        target.companion = target.full_companion()
        np.put_along_axis(target.companion, index, source.companion, axis)


def _unique(self: Tracked, x: Any, **options: Any) -> Any:
    """Nothing is known of the elements where any of them is in doubt."""
    y, *more = np.unique(x.value, **options)
    return x.like(y, None if x.companion is None else np.full(y.shape, np.inf)), *more


def _method(name: str) -> Callable[..., Any]:
    def rule(self: Tracked, x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    return rule


REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.add: lambda x, axis, keepdims: x.reduce_sum(axis, keepdims),
    np.maximum: lambda x, axis, keepdims: x.extremum(1, axis, keepdims),
    np.minimum: lambda x, axis, keepdims: x.extremum(-1, axis, keepdims),
    np.multiply: lambda x, axis, keepdims: x.prod(axis, keepdims),
}

RULES: dict[Any, Callable[..., Any]] = {
    np.shape: lambda self, x: x.shape,
    np.ndim: lambda self, x: x.ndim,
    np.size: lambda self, x: x.size,
    np.result_type: lambda self, *xs: np.float64,
    np.tensordot: _tensordot,
    np.dot: lambda self, a, b: self.contract(np.dot, (a, b), np.shape(a)[-1:]),
    np.einsum: _einsum,
    np.where: lambda self, condition, chosen, other: self.select(condition, chosen, other),
    np.pad: _pad,
    np.zeros_like: lambda self, x, *args, **options: _full_like(self, x, 0.0, *args, **options),
    np.empty_like: lambda self, x, *args, **options: _full_like(self, x, 0.0, *args, **options),
    np.ones_like: lambda self, x, *args, **options: _full_like(self, x, 1.0, *args, **options),
    np.full_like: _full_like,
    np.copyto: _copyto,
    np.unique: _unique,
    np.put_along_axis: _put_along_axis,
    **{
        getattr(np, name): _method(name)
        for name in ("sum", "mean", "var", "max", "min", "prod", "cumsum", "clip",
                     "argmax", "argmin", "argsort")
    },
    np.sort: lambda self, x, axis=-1, **_: x.sorted(axis),
    np.amax: _method("max"),
    np.amin: _method("min"),
}  # fmt: skip
