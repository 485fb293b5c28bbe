"""Sums, means, maxima over axes, which are an input in ONNX and an argument in jax."""

from __future__ import annotations

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.arguments import Array, integers
from d5test.backends.jax.framework import jnp, lax, nn

rows = Table()


def reduction(function: Plan, op: Any, x: Array, axes: Any = None) -> Plan:
    """`function` has `axis` and `keepdims`."""
    which = () if axes is None else integers(axes)
    if not which and op.noop_with_empty_axes:
        return lambda x, axes=None: x
    over, keepdims = which or None, bool(op.keepdims)
    return lambda x, axes=None: function(x, axis=over, keepdims=keepdims)


def largest(x: Array, **which: Any) -> Array:
    return jnp.max(x, **which) if x.size else jnp.max(x, **which, initial=-jnp.inf)


rows.native("ReduceSum", arithmetic="F", values=(1,))(planned(partial(reduction, jnp.sum)))
rows.native("ReduceMean", arithmetic="F", values=(1,))(planned(partial(reduction, jnp.mean)))
rows.native("ReduceMax", arithmetic="F", values=(1,))(planned(partial(reduction, largest)))
rows.native("ReduceLogSumExp", values=(1,))(planned(partial(reduction, nn.logsumexp)))


@rows.native("CumSum", values=(1,))
@planned
def cumsum(op: Any, x: Array, axis: Array) -> Plan:
    """Composed (shifted) if exclusive, which jax does not know."""
    (over,) = integers(axis)
    over %= x.ndim
    if not op.exclusive:
        return lambda x, axis: lax.cumsum(x, over, reverse=bool(op.reverse))
    shifted, kept = [(0, 0)] * x.ndim, [slice(None)] * x.ndim
    shifted[over] = (0, 1) if op.reverse else (1, 0)
    kept[over] = slice(1, None) if op.reverse else slice(x.shape[over])
    index = tuple(kept)

    def call(x: Array, axis: Array) -> Array:
        return jnp.pad(lax.cumsum(x, over, reverse=bool(op.reverse)), shifted)[index]

    return call
