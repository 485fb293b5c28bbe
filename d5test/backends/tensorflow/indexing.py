"""What takes from places, or puts at places, that a tensor names."""

from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import numbers, tf

rows = Table()
NO_GRADIENT = "ONNX has none, of what jumps"


@rows.native("GatherElements", arithmetic="S")
@planned
def gather_elements(op: Any, x: Any, indices: Any) -> Plan:
    """It broadcasts, so that x has to be as short as the indices."""
    axis = op.axis % x.ndim
    part = shortened(x, indices, axis)
    take = tf.experimental.numpy.take_along_axis
    return lambda x, indices: take(x[part], indices, axis)


def shortened(x: Any, indices: Any, axis: int) -> tuple[slice, ...]:
    """What indices along an axis of x may reach."""
    return tuple(slice(None if i == axis else n) for i, n in enumerate(indices.shape))


@rows.native("GatherND", arithmetic="S")
@planned
def gather_nd(op: Any, x: Any, indices: Any) -> Plan:
    b, sizes = op.batch_dims, x.shape[op.batch_dims :]
    return lambda x, indices: tf.gather_nd(x, from_the_front(indices, sizes), b)


SCATTERS = {
    "none": tf.tensor_scatter_nd_update, "add": tf.tensor_scatter_nd_add,
    "max": tf.tensor_scatter_nd_max, "min": tf.tensor_scatter_nd_min,
}  # fmt: skip


@rows.native("ScatterND", arithmetic="S")
@planned
def scatter_nd(op: Any, x: Any, indices: Any, updates: Any) -> Plan:
    function, sizes = SCATTERS.get(op.reduction), x.shape
    if function is None:
        raise Unsupported("TensorFlow has no tf.tensor_scatter_nd_mul")
    return lambda x, i, updates: function(x, from_the_front(i, sizes), updates)


def from_the_front(indices: Any, sizes: Any) -> Any:
    """Rows of indices, which TensorFlow does not count from the end."""
    return tf.where(indices < 0, indices + sizes[: indices.shape[-1]], indices)


@rows.native("TopK", arithmetic="F", values=(1,))
@planned
def top_k(op: Any, x: Any, k: Any) -> Plan:
    n, last = largest_last(op, x, k), op.sorted == 1
    return lambda x, k: tuple(tf.math.top_k(x, n, last))


def largest_last(op: Any, x: Any, k: Any) -> int:
    """How many are wanted of the largest along the last axis."""
    if not op.largest or op.axis % x.ndim != x.ndim - 1:
        raise Unsupported("TensorFlow has the largest along the last axis")
    (n,) = numbers(k)
    return int(n)


ARG: dict[str, Any] = {
    "contract": "any of equal",
    "source": "https://www.tensorflow.org/api_docs/python/tf/math/argmax",
}


def index_of(function: Plan, op: Any, x: Any) -> Any:
    if op.select_last_index:
        raise Unsupported("TensorFlow does not say which of equal extrema it returns")
    index = function(x, op.axis)
    return tf.expand_dims(index, op.axis) if op.keepdims else index


for _operator, _function in (("ArgMax", tf.math.argmax), ("ArgMin", tf.math.argmin)):
    rows.native(_operator, gradient=NO_GRADIENT, **ARG)(partial(index_of, _function))


@rows.native("Compress", arithmetic="F")
def compress(op: Any, x: Any, condition: Any) -> Any:
    """Its mask is as long as the axis."""
    x, axis = (tf.reshape(x, [-1]), 0) if op.axis is None else (x, op.axis % x.ndim)
    part = (*(slice(None),) * axis, slice(condition.shape[0]))
    return tf.boolean_mask(x[part], condition, axis)


@rows.native("OneHot", gradient=NO_GRADIENT, arithmetic="F", values=(1,))
@planned
def one_hot(op: Any, indices: Any, depth: Any, values: Any) -> Plan:
    """Indices below zero, of which TensorFlow has none, count from the end."""
    (n,) = numbers(depth)

    def call(indices: Any, depth: Any, values: Any) -> Any:
        places = tf.where(indices < 0, indices + n, indices)
        axis = op.axis if op.axis >= -1 else op.axis % (indices.ndim + 1)
        return tf.one_hot(places, n, values[1], values[0], axis)

    return call
