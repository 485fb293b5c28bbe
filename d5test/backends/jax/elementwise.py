"""Functions of each element, of one array or of several that broadcast."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.arguments import Array
from d5test.backends.jax.framework import jnp, lax, nn

rows = Table()
rows.elementwise(
    {"Relu": nn.relu, "Log": jnp.log, "Abs": jnp.abs, "Neg": jnp.negative}, arithmetic="F"
)
# Their gradients are products of several primitives, each of which is stored: class P.
rows.elementwise(
    {
        "Sigmoid": nn.sigmoid,
        "Tanh": jnp.tanh,
        "Exp": jnp.exp,
        "Sqrt": jnp.sqrt,
        "Reciprocal": jnp.reciprocal,
        "Erf": lax.erf,
        "Softplus": nn.softplus,
        "Mish": nn.mish,
    }
)
rows.elementwise(
    {
        "Add": jnp.add,
        "Sub": jnp.subtract,
        "Mul": jnp.multiply,
        "Where": jnp.where,
        "HardSwish": nn.hard_swish,
    },
    arithmetic="S",
)


@rows.native("Div", arithmetic="S")
@planned
def divide(op: Any, a: Array, b: Array) -> Plan:
    """The quotient; of integers truncated towards zero, as ONNX has it."""
    if jnp.issubdtype(a.dtype, jnp.floating):
        return jnp.divide
    return lambda a, b: lax.div(*jnp.broadcast_arrays(a, b))


@rows.native("Pow", arithmetic="S")
@planned
def power(op: Any, x: Array, y: Array) -> Plan:
    """The power, in the dtype of its base."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.power
    return lambda x, y: jnp.power(x, y).astype(x.dtype)


def several(of_two: Plan, op: Any, *xs: Array) -> Plan:
    """One function for two inputs; composed for more."""
    return of_two if len(xs) == 2 else lambda *xs: reduce(of_two, xs)


rows.native("Max", arithmetic="S")(planned(partial(several, jnp.maximum)))
rows.native("Min", arithmetic="S")(planned(partial(several, jnp.minimum)))
rows.native("Sum", arithmetic="S")(planned(partial(several, jnp.add)))


@rows.native("LeakyRelu", arithmetic="F")
def leaky_relu(op: Any, x: Array) -> Array:
    return nn.leaky_relu(x, op.alpha)


@rows.native("Gelu")
def gelu(op: Any, x: Array) -> Array:
    return nn.gelu(x, approximate=op.approximate == "tanh")


@rows.native("Clip", arithmetic="F", stopped=(1, 2))
def clip(op: Any, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    return jnp.clip(x, *(v if v is None else lax.stop_gradient(v) for v in (low, high)))
