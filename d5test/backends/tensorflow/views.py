"""What gives a tensor another shape."""

from __future__ import annotations

import math
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.tensorflow.arguments import integers
from d5test.backends.tensorflow.framework import tf

rows = Table()


@rows.native("Flatten", arithmetic="F")
@planned
def flatten(op: Any, x: Any) -> Plan:
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    sides = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    return lambda x: tf.reshape(x, sides)


@rows.native("Squeeze", arithmetic="F", values=(1,))
@planned
def squeeze(op: Any, x: Any, axes: Any = None) -> Plan:
    dims = None if axes is None else list(integers(axes))
    return lambda x, axes=None: tf.squeeze(x, dims)


@rows.native("Unsqueeze", arithmetic="F", values=(1,))
@planned
def unsqueeze(op: Any, x: Any, axes: Any) -> Plan:
    """One function for one axis; `tf.reshape` for more."""
    dims = integers(axes)
    rank = x.ndim + len(dims)
    if len(dims) == 1:
        return lambda x, axes: tf.expand_dims(x, dims[0])
    new, rest = {dim % rank for dim in dims}, iter(x.shape)
    sides = [1 if axis in new else next(rest) for axis in range(rank)]
    return lambda x, axes: tf.reshape(x, sides)
