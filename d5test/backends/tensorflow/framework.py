"""TensorFlow itself, quiet, with the number of threads that was asked for."""

import os
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "OMP_NUM_THREADS" in os.environ:
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", os.environ["OMP_NUM_THREADS"])

import tensorflow as tf

__all__ = ["ValueNeeded", "channels_last", "channels_second", "channelwise", "numbers", "tf"]


class ValueNeeded(Exception):
    """The graph cannot be made before this argument is known."""


def numbers(tensor: Any) -> list[Any]:
    """The numbers in a tensor, flat, also while a graph is made."""
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
