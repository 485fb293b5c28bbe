"""Convolutions and their transposes."""

from __future__ import annotations

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.arguments import Array
from d5test.backends.jax.framework import jnp, lax
from d5test.backends.windows import Windows

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
    strides, dilations = op.strides or (1,) * n, op.dilations or (1,) * n
    extra = op.output_padding or (0,) * n
    given = (op.auto_pad == "NOTSET" and op.pads) or (0,) * (2 * n)
    pads = []
    for i in range(n):
        reach = (w.shape[2 + i] - 1) * dilations[i]
        full = strides[i] * (x.shape[2 + i] - 1) + extra[i] + reach + 1
        low, high = given[i], given[n + i]
        if op.output_shape or op.auto_pad.startswith("SAME"):
            size = op.output_shape[i] if op.output_shape else x.shape[2 + i] * strides[i]
            total = max(full - size, 0)
            low = total // 2 if op.auto_pad == "SAME_UPPER" else total - total // 2
            high = full - size - low
        pads.append((reach - low, reach - high + extra[i]))
    grouped = (g, w.shape[0] // g, *w.shape[1:])
    merged, spatial = (-1, w.shape[0] // g, *w.shape[2:]), range(2, n + 2)

    def transposed(x: Array, w: Array) -> Array:
        w = jnp.flip(w.reshape(grouped).swapaxes(1, 2).reshape(merged), spatial)
        return lax.conv_general_dilated(
            x, w, (1,) * n, pads, strides, dilations, feature_group_count=g
        )

    return biased(transposed, n + 2)
