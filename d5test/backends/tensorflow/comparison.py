"""Comparisons of TensorFlow."""

from d5test.backends.base import Table
from d5test.backends.tensorflow.framework import tf

rows = Table()
rows.elementwise(
    {
        "Equal": tf.math.equal,
        "Greater": tf.math.greater,
        "GreaterOrEqual": tf.math.greater_equal,
        "Less": tf.math.less,
        "LessOrEqual": tf.math.less_equal,
    },
    gradient="booleans have none",
)
