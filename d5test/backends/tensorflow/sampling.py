"""Operators that read between the elements of a tensor."""

from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.resized import Resized
from d5test.backends.tensorflow.framework import channels_last, channels_second, numbers, tf
from d5test.backends.windows import Ints

rows = Table()
METHODS = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}


def method_of(op: Any, x: Any, scales: Any, sizes: Any) -> tuple[str, bool, Ints]:
    """TensorFlow's words for what Resize does, and the size of images."""
    at = Resized.of(op, x.shape, *([] if t is None else numbers(t) for t in (scales, sizes)))
    if x.ndim != 4 or not at.pixels or not at.plain:
        raise Unsupported("TensorFlow resizes images to a size")
    if x.dtype != tf.float32:
        raise Unsupported("TensorFlow interpolates in float32, and returns that")
    antialias = bool(op.antialias)
    weighted = op.mode == "linear" or at.cubic(op, -0.5, outside=True)
    if op.mode == "nearest":
        weighted = op.nearest_mode == "round_prefer_ceil"
    if not at.half_pixel or not weighted or (antialias and not op.exclude_outside):
        raise Unsupported("tf.image.resize takes half pixels, and weights outside for zero")
    if op.mode == "cubic" and not antialias:
        raise Unsupported("TensorFlow has a table of cubic weights, for 1,024 places")
    return METHODS[op.mode], antialias, at.sizes[2:]


@rows.native("Resize", dtypes=("float32",), values=(1, 2, 3))
@planned
def resize(op: Any, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Plan:
    last, second = channels_last(4), channels_second(4)
    method, antialias, size = method_of(op, x, scales, sizes)

    def call(x: Any, *_: Any) -> Any:
        images = tf.transpose(x, last)
        return tf.transpose(tf.image.resize(images, size, method, antialias=antialias), second)

    return call
