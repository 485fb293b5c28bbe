"""What takes from places, or puts at places, that an array names."""

from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.framework import Array, jnp

rows = Table()
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
