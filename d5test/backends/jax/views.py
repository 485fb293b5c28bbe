"""What gives a tensor another shape."""

from __future__ import annotations

import math
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.jax.arguments import Array, integers
from d5test.backends.jax.framework import jnp

rows = Table()


@rows.native("Flatten", arithmetic="F")
@planned
def flatten(op: Any, x: Array) -> Plan:
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    sides = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return lambda x: jnp.reshape(x, sides)


@rows.native("Squeeze", arithmetic="F", values=(1,))
@planned
def squeeze(op: Any, x: Array, axes: Array | None = None) -> Plan:
    dims = None if axes is None else integers(axes)
    return lambda x, axes=None: jnp.squeeze(x, dims)


@rows.native("Unsqueeze", arithmetic="F", values=(1,))
@planned
def unsqueeze(op: Any, x: Array, axes: Array) -> Plan:
    dims = integers(axes)
    return lambda x, axes: jnp.expand_dims(x, dims)
