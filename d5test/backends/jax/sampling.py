"""Operators that read between the elements of a tensor."""

from typing import Any

import numpy as np

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.jax.framework import Array, jax
from d5test.backends.resized import Resized

rows = Table()


@rows.native("Resize", values=(1, 2, 3), arithmetic="S")
@planned
def resize(op: Any, x: Array, roi: Any = None, scales: Any = None, sizes: Any = None) -> Plan:
    given = (() if t is None else np.asarray(t).tolist() for t in (scales, sizes))
    at, antialias = Resized.of(op, x.shape, *given), bool(op.antialias)
    method = method_of(op, at)
    return lambda x, *_: jax.image.resize(x, at.sizes, method, antialias=antialias)


def method_of(op: Any, at: Resized) -> str:
    """jax's name of what Resize does."""
    if not (at.plain and at.half_pixel):
        raise Unsupported("jax.image.resize takes half pixels, and a size")
    if op.mode == "nearest" and op.nearest_mode == "round_prefer_ceil":
        return "nearest"
    if op.mode == "linear" and (op.exclude_outside or not op.antialias):
        return "linear"
    if op.mode == "cubic" and at.cubic(op, -0.5, outside=True):
        return "cubic"
    if op.mode == "cubic" and at.cubic(op, -0.75, outside=False) and not op.antialias:
        return "cubic-pytorch"
    raise Unsupported("jax.image.resize has other weights")
