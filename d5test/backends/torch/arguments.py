"""Tensors and attributes as the arguments that torch takes."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from d5test.backends.base import Unsupported

Ints = tuple[int, ...]


def integers(x: Tensor) -> Ints:
    """The values of an integer tensor that is an argument in torch: a shape, axes, pads.

    The compiled backend has them beside the tensor, since `tolist` would break its graph.
    """
    known: Ints | None = getattr(x, "known", None)
    return tuple(x.reshape(-1).tolist()) if known is None else known


def outwards(begin: Sequence[int], end: Sequence[int]) -> list[int]:
    """Paddings as `F.pad` wants them: the last axis first, begin and end alternating."""
    return [side for pair in zip(begin[::-1], end[::-1], strict=True) for side in pair]


def by_rank(functions: dict[int, Any], x: Tensor) -> Any:
    """The function for as many spatial axes as `x` has."""
    if x.ndim - 2 not in functions:
        raise Unsupported(f"torch has windows over 1, 2 or 3 spatial axes, not {x.ndim - 2}")
    return functions[x.ndim - 2]


def short(axes: Ints) -> Any:
    """One number for equal axes: torch reads a tuple in 0.2 microseconds.

    For the same reason rows pass arguments by position: a name costs as much.
    """
    return axes[0] if len(set(axes)) == 1 else axes


def leading(arguments: tuple[Any, ...], usual: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments up to the last that is not as usual: the others cost 0.3 microseconds each."""
    n = len(arguments)
    while n and arguments[n - 1] == usual[n - 1]:
        n -= 1
    return arguments[:n]


def constant(x: Tensor | None) -> Tensor | None:
    """A tensor through which torch does not differentiate, and raises if it should."""
    return x.detach() if x is not None and x.requires_grad else x


def numbers(x: Tensor | None) -> tuple[float, ...]:
    """The values of a tensor that is an argument in torch, as `integers`; none if it is absent."""
    return () if x is None else integers(x)
