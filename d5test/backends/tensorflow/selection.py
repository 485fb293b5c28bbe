"""What TensorFlow chooses by values."""

from typing import Any

import numpy as np

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import numbers, tf

rows = Table()


@rows.native("NonZero", gradient=UNDERIVED)
def nonzero(op: Any, x: Any) -> Any:
    return tf.transpose(tf.where(x))


@rows.native("Unique", gradient=UNDERIVED, outputs=1)
def unique(op: Any, x: Any) -> Any:
    """It does not say where an element comes first, and takes a vector."""
    if op.sorted or op.axis is not None:
        raise Unsupported("tf.unique keeps the order in which the elements of a vector come first")
    return tf.unique(tf.reshape(x, [-1]))[0]


@rows.native("NonMaxSuppression", gradient=UNDERIVED, values=(2,), dtypes=("float32", "float16"))
@planned
def suppress(op: Any, boxes: Any, scores: Any, most: Any, *thresholds: Any) -> Plan:
    """Composed of a call for each batch and class."""
    if op.center_point_box:
        raise Unsupported("tf.image.non_max_suppression takes two corners of a box")
    (n,), places = numbers(most), [*np.ndindex(*scores.shape[:2])]

    def call(boxes: Any, scores: Any, most: Any, iou: Any = None, least: Any = None) -> Any:
        overlap, score = (
            tf.cast(0, boxes.dtype) if iou is None else iou[0],
            tf.cast(-np.inf, boxes.dtype) if least is None else least[0],
        )
        taken = []
        for b, c in places:
            i = tf.image.non_max_suppression(boxes[b], scores[b, c], n, overlap, score)
            count = tf.shape(i)  # which a graph does not know before
            taken.append(tf.stack([tf.fill(count, b), tf.fill(count, c), i], 1))
        return tf.cast(tf.concat(taken, 0), tf.int64)

    return call
