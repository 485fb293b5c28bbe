"""Functions of each element, of one tensor or of several that broadcast."""

from functools import partial, reduce
from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import tf

rows = Table()
rows.elementwise(
    {
        "Sigmoid": tf.sigmoid,
        "Tanh": tf.tanh,
        "Exp": tf.exp,
        "Log": tf.math.log,
        "Sqrt": tf.sqrt,
        "Erf": tf.math.erf,
        "Softplus": tf.math.softplus,
        "Reciprocal": tf.math.reciprocal,
        "Softsign": tf.nn.softsign,
        "Sin": tf.math.sin,
        "Cos": tf.math.cos,
        "Tan": tf.math.tan,
        "Asin": tf.math.asin,
        "Acos": tf.math.acos,
        "Atan": tf.math.atan,
        "Sinh": tf.math.sinh,
        "Cosh": tf.math.cosh,
        "Asinh": tf.math.asinh,
        "Acosh": tf.math.acosh,
        "Atanh": tf.math.atanh,
    }
)
rows.elementwise(
    {"Relu": tf.nn.relu, "Abs": tf.abs, "Neg": tf.negative, "Identity": tf.identity},
    arithmetic="F",
)
rows.elementwise(
    {"Floor": tf.floor, "Ceil": tf.math.ceil, "Round": tf.round, "Sign": tf.sign},
    arithmetic="F",
    gradient=UNDERIVED,
)
rows.elementwise(
    {"Add": tf.add, "Sub": tf.subtract, "Mul": tf.multiply, "Where": tf.where}, arithmetic="S"
)


@rows.native("LeakyRelu")
def leaky_relu(op: Any, x: Any) -> Any:
    return tf.nn.leaky_relu(x, op.alpha)


@rows.native("Swish")
def swish(op: Any, x: Any) -> Any:
    return tf.nn.silu(x, op.alpha)


@rows.composed("SwiGLU")
def swiglu(op: Any, a: Any, b: Any) -> Any:
    return swish(op, a) * b


@rows.native("Mod", stopped=(1,), arithmetic="S")
@planned
def mod(op: Any, a: Any, b: Any) -> Plan:
    plan: Plan = tf.truncatemod if op.fmod else tf.math.floormod
    return plan


@rows.native("Gelu")
def gelu(op: Any, x: Any) -> Any:
    return tf.nn.gelu(x, approximate=op.approximate == "tanh")


@rows.native("Div", arithmetic="S")
@planned
def div(op: Any, a: Any, b: Any) -> Plan:
    plan: Plan = tf.truncatediv if a.dtype.is_integer else tf.divide
    return plan


@rows.native("Pow", arithmetic="S")
@planned
def power(op: Any, x: Any, y: Any) -> Plan:
    if x.dtype != y.dtype and x.dtype.is_integer:
        raise Unsupported("tf.pow wants base and exponent of one dtype")
    kept = x.dtype == y.dtype
    return tf.pow if kept else lambda x, y: tf.pow(x, tf.cast(y, x.dtype))


def several(of_two: Plan, op: Any, *inputs: Any) -> Plan:
    """One function for two inputs; composed for more."""
    return of_two if len(inputs) == 2 else lambda *inputs: reduce(of_two, inputs)


rows.native("Max", arithmetic="S")(planned(partial(several, tf.maximum)))
rows.native("Min", arithmetic="S")(planned(partial(several, tf.minimum)))
rows.native("Sum", arithmetic="S")(planned(partial(several, tf.add)))


@rows.composed("Mean", arithmetic="S")
def mean(op: Any, *inputs: Any) -> Any:
    return reduce(tf.add, inputs) / len(inputs)


@rows.composed("Shrink", arithmetic="S")
def shrink(op: Any, x: Any) -> Any:
    inner = tf.where(x > op.lambd, x - op.bias, tf.zeros_like(x))
    return tf.where(x < -op.lambd, x + op.bias, inner)


@rows.native("Clip", arithmetic="F", stopped=(1, 2))
@planned
def clip(op: Any, x: Any, low: Any = None, high: Any = None) -> Plan:
    """A minimum above the maximum is lowered to it: ONNX gives the maximum, TensorFlow not.

    Then no x reaches the result, not even one that equals the maximum.
    """

    def call(x: Any, low: Any = None, high: Any = None) -> Any:
        if high is None:
            return tf.identity(x) if low is None else tf.maximum(x, tf.stop_gradient(low))
        high = tf.stop_gradient(high)
        if low is None:
            return tf.minimum(x, high)
        low = tf.stop_gradient(low)
        x = tf.where(low > high, tf.stop_gradient(x), x)
        return tf.clip_by_value(x, tf.minimum(low, high), high)

    return call


@rows.composed("HardSwish", arithmetic="S")
def hard_swish(op: Any, x: Any) -> Any:
    return x * tf.clip_by_value(x / 6 + 0.5, 0.0, 1.0)


@rows.composed("Mish")
def mish(op: Any, x: Any) -> Any:
    return x * tf.tanh(tf.math.softplus(x))


SELU = (1.6732631921768188, 1.0507010221481323)
"""TensorFlow's alpha and gamma, as float32 has them."""


@rows.native("Elu")
@planned
def elu(op: Any, x: Any) -> Plan:
    """Composed (scaled where it is negative) with another alpha than 1."""
    return scaled(op.alpha)


def scaled(alpha: float) -> Plan:
    """The function elu with this alpha."""
    function: Plan = tf.nn.elu
    return function if alpha == 1 else lambda x: tf.where(x < 0, alpha * tf.nn.elu(x), x)


@rows.native("Selu")
@planned
def selu(op: Any, x: Any) -> Plan:
    """Composed (of elu) with other constants than TensorFlow's, of which float32 has ONNX's."""
    own = (op.alpha, op.gamma) == SELU and x.dtype != tf.float64
    one, gamma = scaled(op.alpha), op.gamma
    return tf.nn.selu if own else lambda x: gamma * one(x)


@rows.composed("Celu")
def celu(op: Any, x: Any) -> Any:
    """By expm1 where alpha is negative, so that x / alpha is positive where x is not."""
    curve = tf.nn.elu if op.alpha > 0 else tf.math.expm1
    return tf.where(x < 0, op.alpha * curve(x / op.alpha), x)


@rows.composed("HardSigmoid", arithmetic="S")
def hard_sigmoid(op: Any, x: Any) -> Any:
    return tf.clip_by_value(op.alpha * x + op.beta, 0.0, 1.0)


@rows.composed("ThresholdedRelu", arithmetic="F")
def thresholded_relu(op: Any, x: Any) -> Any:
    return tf.where(x > op.alpha, x, tf.zeros_like(x))


@rows.composed("PRelu", arithmetic="S")
def prelu(op: Any, x: Any, slope: Any) -> Any:
    return tf.where(x < 0, slope * x, x)
