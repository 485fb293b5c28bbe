"""What takes from places, or puts at places, that an array names."""

from functools import partial
from typing import Any

import numpy as np

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.jax.framework import Array, integers, jnp, lax, nn

rows = Table()
NO_GRADIENT = "ONNX has none, of what jumps"
METHODS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}
"""ONNX's reductions as methods of `x.at[...]`."""


@rows.native("GatherElements", arithmetic="S")
@planned
def gather_elements(op: Any, x: Array, indices: Array) -> Plan:
    """It broadcasts, so that x has to be as short as the indices."""
    axis = op.axis % x.ndim
    part = tuple(slice(None if i == axis else n) for i, n in enumerate(indices.shape))
    return lambda x, indices: jnp.take_along_axis(x[part], indices, axis)


@rows.native("GatherND", arithmetic="S")
@planned
def gather_nd(op: Any, x: Array, indices: Array) -> Plan:
    own = grid(indices.shape[:-1])[: op.batch_dims]
    return lambda x, indices: x[(*own, *columns(indices))]


@rows.native("ScatterElements", arithmetic="S")
@planned
def scatter_elements(op: Any, x: Array, indices: Array, updates: Array) -> Plan:
    places, method = list(grid(indices.shape)), METHODS[op.reduction]

    def call(x: Array, indices: Array, updates: Array) -> Array:
        index = [*places]
        index[op.axis] = indices
        return getattr(x.at[tuple(index)], method)(updates)

    return call


@rows.native("ScatterND", arithmetic="S")
@planned
def scatter_nd(op: Any, x: Array, indices: Array, updates: Array) -> Plan:
    method = METHODS[op.reduction]
    return lambda x, i, updates: getattr(x.at[columns(i)], method)(updates)


def grid(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """The places along each axis of a shape, which broadcast to it."""
    return tuple(jnp.indices(shape, sparse=True))


def columns(indices: Array) -> tuple[Array, ...]:
    """The index along each axis of which rows have one each."""
    return tuple(jnp.moveaxis(indices, -1, 0))


@rows.native("TopK", arithmetic="F", values=(1,))
@planned
def top_k(op: Any, x: Array, k: Array) -> Plan:
    if not op.largest or op.axis % x.ndim != x.ndim - 1:
        raise Unsupported("jax.lax.top_k has the largest along the last axis")
    (n,) = integers(k)
    return lambda x, k: tuple(lax.top_k(x, n))


def index_of(function: Plan, op: Any, x: Array) -> Array:
    if op.select_last_index:
        raise Unsupported("jax.numpy returns the first of equal extrema")
    return function(x, op.axis, keepdims=bool(op.keepdims))


for _operator, _function in (("ArgMax", jnp.argmax), ("ArgMin", jnp.argmin)):
    rows.native(_operator, gradient=NO_GRADIENT)(partial(index_of, _function))


@rows.composed("Hardmax", gradient=NO_GRADIENT)
def hardmax(op: Any, x: Array) -> Array:
    return nn.one_hot(jnp.argmax(x, op.axis), x.shape[op.axis], dtype=x.dtype, axis=op.axis)


@rows.native("Compress", arithmetic="F", values=(1,))
@planned
def compress(op: Any, x: Array, condition: Array) -> Plan:
    """By the places that a mask has; `jnp.compress` takes none under `jax.jit`."""
    flat, taken = op.axis is None, np.flatnonzero(np.asarray(condition))
    index = (*(slice(None),) * (0 if flat else op.axis % x.ndim), taken)
    return lambda x, condition: (x.reshape(-1) if flat else x)[index]


@rows.composed("OneHot", gradient=NO_GRADIENT, values=(1,))
@planned
def one_hot(op: Any, indices: Array, depth: Array, values: Array) -> Plan:
    (n,) = integers(depth)

    def call(indices: Array, depth: Array, values: Array) -> Array:
        places = jnp.where(indices < 0, indices + n, indices)
        hot = nn.one_hot(places, n, axis=op.axis, dtype=bool)
        return jnp.where(hot, values[1], values[0])

    return call


@rows.composed("TensorScatter")
@planned
def tensor_scatter(op: Any, cache: Array, update: Array, first: Array | None = None) -> Plan:
    """By the indices of each element; jax drops an element that lies outside."""
    axis = op.axis % cache.ndim
    beside = [x.shape[:axis] + x.shape[axis + 1 :] for x in (cache, update)]
    if beside[0] != beside[1]:
        raise ValueError("cache and update differ beside the axis")
    own, samples = grid(update.shape), [-1] + [1] * (cache.ndim - 1)

    def call(cache: Array, update: Array, first: Array | None = None) -> Array:
        places = [*own]
        if first is not None:
            places[op.axis] = own[op.axis] + first.reshape(samples)
        if op.mode == "circular":
            places[op.axis] = places[op.axis] % cache.shape[op.axis]
        return cache.at[tuple(places)].set(update)

    return call
