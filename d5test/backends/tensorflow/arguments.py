"""Integer tensors as the arguments that TensorFlow takes, and the order of axes that it wants."""

from __future__ import annotations

from typing import Any

import numpy as np

from d5test.backends.tensorflow.framework import tf


class ValueNeeded(Exception):
    """The graph cannot be made before this integer is known."""


def integers(tensor: Any) -> list[int]:
    """The numbers in an integer tensor, flat, also while a graph is made."""
    value = tf.get_static_value(tensor)
    if value is None:
        raise ValueNeeded
    return list(np.ravel(value).tolist())


def channels_last(rank: int) -> tuple[int, ...]:
    """The transposition from (n, c, ...) to (n, ..., c)."""
    return (0, *range(2, rank), 1)


def channels_second(rank: int) -> tuple[int, ...]:
    """The transposition from (n, ..., c) to (n, c, ...)."""
    return (0, rank - 1, *range(1, rank - 1))


def channelwise(parameter: Any, x: Any) -> Any:
    """A parameter (c,) as it multiplies x (n, c, ...)."""
    return tf.reshape(parameter, (-1, *(1,) * (x.ndim - 2)))
