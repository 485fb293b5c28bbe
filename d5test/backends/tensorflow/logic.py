"""Logic of TensorFlow."""

from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, planned
from d5test.backends.tensorflow.framework import tf

rows = Table()
rows.elementwise(
    {
        "And": tf.logical_and,
        "Or": tf.logical_or,
        "Xor": tf.math.logical_xor,
        "Not": tf.logical_not,
        "BitwiseAnd": tf.bitwise.bitwise_and,
        "BitwiseOr": tf.bitwise.bitwise_or,
        "BitwiseXor": tf.bitwise.bitwise_xor,
        "BitwiseNot": tf.bitwise.invert,
        "IsNaN": tf.math.is_nan,
    },
    gradient=UNDERIVED,
)


@rows.native("BitShift", gradient=UNDERIVED)
@planned
def shift(op: Any, x: Any, y: Any) -> Plan:
    left: Plan = tf.bitwise.left_shift
    return left if op.direction == "LEFT" else tf.bitwise.right_shift


@rows.native("IsInf", gradient=UNDERIVED)
@planned
def infinite(op: Any, x: Any) -> Plan:
    """Composed (of a comparison) where one sign is asked for, or none."""
    if op.detect_negative and op.detect_positive:
        plan: Plan = tf.math.is_inf
        return plan
    negative, positive = bool(op.detect_negative), bool(op.detect_positive)
    return lambda x: tf.math.is_inf(x) & ((x < 0) & negative | (x > 0) & positive)
