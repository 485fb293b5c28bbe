"""Tensors and attributes as the arguments that torch takes."""

from __future__ import annotations

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


DEFAULTS = {
    "stride": 1,
    "padding": 0,
    "dilation": 1,
    "groups": 1,
    "output_padding": 0,
    "ceil_mode": False,
    "count_include_pad": True,
}


def spoken(**given: Any) -> dict[str, Any]:
    """Arguments as one writes them: one number for equal axes, and none that is the default.

    torch reads a tuple in 0.2 microseconds, and 0.7 for all that a convolution has.
    """
    short = {
        name: each[0] if isinstance(each, tuple) and len(set(each)) == 1 else each
        for name, each in given.items()
    }
    return {name: each for name, each in short.items() if each != DEFAULTS.get(name)}


def constant(x: Tensor | None) -> Tensor | None:
    """A tensor through which torch does not differentiate, and raises if it should."""
    return x.detach() if x is not None and x.requires_grad else x
