"""Functions of each element, of one tensor or of several that broadcast."""

from functools import partial, reduce
from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, planned
from d5test.backends.jax.framework import Array, jnp, lax, nn

rows = Table()
rows.elementwise(
    {
        "Relu": nn.relu,
        "Log": jnp.log,
        "Abs": jnp.abs,
        "Neg": jnp.negative,
        "Identity": jnp.copy,
    },
    arithmetic="F",
)
rows.elementwise(
    {"Floor": jnp.floor, "Ceil": jnp.ceil, "Round": jnp.round, "Sign": jnp.sign},
    arithmetic="F",
    gradient=UNDERIVED,
)
# Their gradients are products of several primitives, each of which is stored: class P.
rows.elementwise(
    {
        "Sigmoid": nn.sigmoid,
        "Tanh": jnp.tanh,
        "Exp": jnp.exp,
        "Sqrt": jnp.sqrt,
        "Reciprocal": jnp.reciprocal,
        "Erf": lax.erf,
        "Softplus": nn.softplus,
        "Mish": nn.mish,
        "Softsign": nn.soft_sign,
        "Sin": jnp.sin,
        "Cos": jnp.cos,
        "Tan": jnp.tan,
        "Asin": jnp.asin,
        "Acos": jnp.acos,
        "Atan": jnp.atan,
        "Sinh": jnp.sinh,
        "Cosh": jnp.cosh,
        "Asinh": jnp.asinh,
        "Acosh": jnp.acosh,
        "Atanh": jnp.atanh,
    }
)
rows.elementwise(
    {
        "Add": jnp.add,
        "Sub": jnp.subtract,
        "Mul": jnp.multiply,
        "Where": jnp.where,
        "HardSwish": nn.hard_swish,
    },
    arithmetic="S",
)


@rows.native("Div", arithmetic="S")
@planned
def divide(op: Any, a: Array, b: Array) -> Plan:
    """The quotient; of integers truncated towards zero, as ONNX has it."""
    if jnp.issubdtype(a.dtype, jnp.floating):
        return jnp.divide
    return lambda a, b: lax.div(*jnp.broadcast_arrays(a, b))


@rows.native("Pow", arithmetic="S")
@planned
def power(op: Any, x: Array, y: Array) -> Plan:
    """The power, in the dtype of its base."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.power
    return lambda x, y: jnp.power(x, y).astype(x.dtype)


def several(of_two: Plan, op: Any, *xs: Array) -> Plan:
    """One function for two inputs; composed for more."""
    return of_two if len(xs) == 2 else lambda *xs: reduce(of_two, xs)


for _operator, _name in (("Max", "maximum"), ("Min", "minimum")):
    _source = f"https://docs.jax.dev/en/latest/_autosummary/jax.numpy.{_name}.html"
    rows.native(_operator, arithmetic="S", propagates_nan=True, source=_source)(
        planned(partial(several, getattr(jnp, _name)))
    )
rows.native("Sum", arithmetic="S")(planned(partial(several, jnp.add)))


@rows.composed("Mean", arithmetic="S")
def mean(op: Any, *xs: Array) -> Array:
    return reduce(jnp.add, xs) / len(xs)


@rows.composed("Shrink", arithmetic="S")
def shrink(op: Any, x: Array) -> Array:
    return jnp.where(x < -op.lambd, x + op.bias, jnp.where(x > op.lambd, x - op.bias, 0))


def with_alpha(function: Plan, op: Any, x: Array) -> Any:
    return function(x, op.alpha)


rows.native("LeakyRelu", arithmetic="F")(partial(with_alpha, nn.leaky_relu))
rows.native("Elu")(partial(with_alpha, nn.elu))
rows.native("Celu")(partial(with_alpha, nn.celu))


@rows.native("Swish")
@planned
def swish(op: Any, x: Array) -> Plan:
    """Composed (of sigmoid) with another alpha than 1."""
    alpha = op.alpha
    return nn.silu if alpha == 1 else lambda x: x * nn.sigmoid(alpha * x)


@rows.composed("SwiGLU")
def swiglu(op: Any, a: Array, b: Array) -> Array:
    return swish(op, a) * b


@rows.native("Mod", arithmetic="S", stopped=(1,))
@planned
def mod(op: Any, a: Array, b: Array) -> Plan:
    return jnp.fmod if op.fmod else jnp.mod


@rows.native("Gelu")
def gelu(op: Any, x: Array) -> Array:
    return nn.gelu(x, approximate=op.approximate == "tanh")


@rows.native("Clip", arithmetic="F", stopped=(1, 2))
def clip(op: Any, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    return jnp.clip(x, *(v if v is None else lax.stop_gradient(v) for v in (low, high)))


SELU = (1.6732631921768188, 1.0507010221481323)
"""jax's alpha and gamma, as float32 has them."""
HARD = (0.1666666716337204, 0.5)
"""The line of jax's hard sigmoid, as float32 has it."""


@rows.native("Selu")
@planned
def selu(op: Any, x: Array) -> Plan:
    """Composed (of elu) with other constants than jax's, of which float32 has ONNX's."""
    alpha, gamma = op.alpha, op.gamma
    own = (alpha, gamma) == SELU and x.dtype != jnp.float64
    return nn.selu if own else lambda x: gamma * nn.elu(x, alpha)


@rows.native("HardSigmoid", arithmetic="S")
@planned
def hard_sigmoid(op: Any, x: Array) -> Plan:
    """Composed (of a line and clip) for another line than jax's."""
    alpha, beta = op.alpha, op.beta
    own = (alpha, beta) == HARD and x.dtype != jnp.float64
    return nn.hard_sigmoid if own else lambda x: jnp.clip(alpha * x + beta, 0, 1)


@rows.composed("ThresholdedRelu", arithmetic="F")
def thresholded_relu(op: Any, x: Array) -> Array:
    return jnp.where(x > op.alpha, x, 0)


@rows.composed("PRelu", arithmetic="S")
def prelu(op: Any, x: Array, slope: Array) -> Array:
    return jnp.where(x < 0, slope * x, x)
