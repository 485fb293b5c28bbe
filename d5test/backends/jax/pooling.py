"""Maxima and means of windows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.arguments import Array
from d5test.backends.jax.framework import jnp, lax
from d5test.backends.windows import Pads, Windows

rows = Table()


def pooling(function: Plan, start: float, x: Array, at: Windows, pads: Pads) -> Plan:
    """`lax.reduce_window` over the spatial axes of arrays like x (n, c, ...)."""
    one = (1, 1)
    return partial(
        lax.reduce_window,
        init_value=np.array(start, x.dtype),  # concrete: else jax sees no gradient
        computation=function,
        window_dimensions=one + at.kernel,
        window_strides=one + at.strides,
        padding=((0, 0), (0, 0), *pads),
        window_dilation=one + at.dilations,
    )


@rows.native("MaxPool", outputs=1, arithmetic="S")
@planned
def max_pool(op: Any, x: Array) -> Plan:
    at = Windows.of(op, x.shape[2:], op.kernel_shape)
    return pooling(lax.max, -np.inf, x, at, at.covering)


@rows.composed("AveragePool", arithmetic="S")
@planned
def average_pool(op: Any, x: Array) -> Plan:
    at, include = Windows.of(op, x.shape[2:], op.kernel_shape), op.count_include_pad
    sums = pooling(lax.add, 0.0, x, at, [(0, m) for m in at.more])
    widths = [(0, 0), (0, 0), *at.pads]

    def call(x: Array) -> Array:
        counted = jnp.pad(jnp.ones_like(x), widths, constant_values=include)
        return sums(jnp.pad(x, widths)) / sums(counted)

    return call


@rows.native("GlobalAveragePool", arithmetic="F")
@planned
def global_average_pool(op: Any, x: Array) -> Plan:
    return partial(jnp.mean, axis=tuple(range(2, x.ndim)), keepdims=True)
