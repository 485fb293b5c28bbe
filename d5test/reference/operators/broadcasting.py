"""The adjoint of broadcasting, which the gradients of every broadcasting operator end with."""

from __future__ import annotations

from typing import Any


def unbroadcast(dy: Any, shape: tuple[int, ...]) -> Any:
    """The sum of `dy` over the axes along which an array of `shape` was broadcast."""
    added = dy.ndim - len(shape)
    repeated = tuple(
        axis + added for axis, n in enumerate(shape) if n == 1 and dy.shape[axis + added] != 1
    )
    axes = (*range(added), *repeated)
    return dy.sum(axes, keepdims=True).reshape(shape) if axes else dy
