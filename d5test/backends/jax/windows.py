"""Convolutions, their transposes, and poolings: what slides over spatial axes."""

from functools import partial
from typing import Any

import numpy as np

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.framework import Array, jnp, lax, nn
from d5test.backends.windows import Pads, Windows

rows = Table()


@rows.native("Conv", arithmetic="S")
@planned
def conv(op: Any, x: Array, w: Array, b: Array | None = None) -> Plan:
    at = Windows.of(op, x.shape[2:], w.shape[2:])
    convolve = partial(
        lax.conv_general_dilated,
        window_strides=at.strides,
        padding=at.pads,
        rhs_dilation=at.dilations,
        feature_group_count=op.group,
    )
    return biased(convolve, x.ndim)


def biased(convolve: Plan, rank: int) -> Plan:
    """A convolution of x and w, and the bias (c,) added to its result (n, c, ...)."""
    channels = (-1, *(1,) * (rank - 2))

    def call(x: Array, w: Array, b: Array | None = None) -> Array:
        y = convolve(x, w)
        return y if b is None else y + b.reshape(channels)

    return call


@rows.composed("ConvTranspose", arithmetic="S")
@planned
def conv_transpose(op: Any, x: Array, w: Array, b: Array | None = None) -> Plan:
    n, g = x.ndim - 2, op.group
    at, extra = Windows.of(op, x.shape[2:], w.shape[2:]), op.output_padding or (0,) * n
    reaches = [(k - 1) * d for k, d in zip(at.kernel, at.dilations, strict=True)]
    axes = zip(reaches, at.cut(op), extra, strict=True)
    pads = [(reach - low, reach - high + more) for reach, (low, high), more in axes]
    grouped = (g, w.shape[0] // g, *w.shape[1:])
    merged, spatial = (-1, w.shape[0] // g, *w.shape[2:]), range(2, n + 2)

    def transposed(x: Array, w: Array) -> Array:
        w = jnp.flip(w.reshape(grouped).swapaxes(1, 2).reshape(merged), spatial)
        return lax.conv_general_dilated(
            x, w, (1,) * n, pads, at.strides, at.dilations, feature_group_count=g
        )

    return biased(transposed, n + 2)


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
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    return pooling(lax.max, lowest, x, at, at.covering)


@rows.composed("AveragePool", arithmetic="S")
@planned
def average_pool(op: Any, x: Array) -> Plan:
    at, include = Windows.of(op, x.shape[2:], op.kernel_shape), op.count_include_pad
    # how much farther the last window reaches with ceil_mode; negative if not so far
    more = [(0, r - e if at.ceil else 0) for r, e in zip(at.reach, at.end, strict=True)]
    sums = pooling(lax.add, 0.0, x, at, more)
    widths = [(0, 0), (0, 0), *at.pads]

    def call(x: Array) -> Array:
        counted = jnp.pad(jnp.ones_like(x), widths, constant_values=include)
        return sums(jnp.pad(x, widths)) / sums(counted)

    return call


def reduced(function: Plan, op: Any, x: Array) -> Plan:
    return partial(function, axis=tuple(range(2, x.ndim)), keepdims=True)


rows.native("GlobalAveragePool", arithmetic="F")(planned(partial(reduced, jnp.mean)))
rows.native("GlobalMaxPool", arithmetic="F")(planned(partial(reduced, jnp.max)))


@rows.native("GlobalLpPool")
@planned
def global_lp_pool(op: Any, x: Array) -> Plan:
    return reduced(partial(jnp.linalg.vector_norm, ord=op.p), op, x)


@rows.composed("LpPool", arithmetic="S")
@planned
def lp_pool(op: Any, x: Array) -> Plan:
    at, p = Windows.of(op, x.shape[2:], op.kernel_shape), op.p
    sums = pooling(lax.add, 0.0, x, at, at.covering)
    return lambda x: sums(jnp.abs(x) ** p) ** (1 / p)


@rows.composed("CausalConvWithState", arithmetic="S", stopped=(3,))
@planned
def causal_conv(op: Any, x: Array, w: Array, *rest: Array | None) -> Plan:
    before, n, c = w.shape[2] - 1, x.shape[2], x.shape[1]
    convolve = partial(
        lax.conv_general_dilated, window_strides=(1,), padding="VALID", feature_group_count=c
    )
    biased_convolve = biased(convolve, 3)

    def call(x: Array, w: Array, b: Any = None, past: Any = None) -> tuple[Array, Array]:
        past = jnp.zeros((*x.shape[:2], before), x.dtype) if past is None else past
        steps = jnp.concatenate((past, x), 2)
        y = biased_convolve(steps, w, b)
        return y if op.activation == "none" else nn.silu(y), steps[:, :, n:]

    return call
