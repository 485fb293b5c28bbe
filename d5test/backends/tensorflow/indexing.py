"""What takes from places, or puts at places, that a tensor names."""

from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import tf

rows = Table()


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
