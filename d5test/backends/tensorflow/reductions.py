"""Sums, means, maxima over axes, which are an input in ONNX and an argument in TensorFlow."""

from __future__ import annotations

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, planned
from d5test.backends.tensorflow.arguments import integers
from d5test.backends.tensorflow.framework import tf

rows = Table()


def reduction(function: Plan, op: Any, data: Any, axes: Any = None) -> Plan:
    """`function` has `axis` and `keepdims`."""
    given = [] if axes is None else integers(axes)
    if not given and op.noop_with_empty_axes:
        return lambda data, axes=None: tf.identity(data)
    keepdims = bool(op.keepdims)
    return lambda data, axes=None: function(data, given or None, keepdims=keepdims)


rows.native("ReduceSum", arithmetic="S", values=(1,))(planned(partial(reduction, tf.reduce_sum)))
rows.native("ReduceMean", arithmetic="S", values=(1,))(planned(partial(reduction, tf.reduce_mean)))
rows.native("ReduceMax", arithmetic="F", values=(1,))(planned(partial(reduction, tf.reduce_max)))
rows.native("ReduceLogSumExp", arithmetic="S", values=(1,))(
    planned(partial(reduction, tf.reduce_logsumexp))
)


@rows.native("CumSum", arithmetic="S", values=(1,))
@planned
def cumsum(op: Any, x: Any, axis: Any) -> Plan:
    (over,), exclusive, reverse = integers(axis), bool(op.exclusive), bool(op.reverse)
    return lambda x, axis: tf.cumsum(x, over, exclusive=exclusive, reverse=reverse)
