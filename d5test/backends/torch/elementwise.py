"""Functions of each element, of one tensor or of several that broadcast."""

import math
from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.torch.arguments import constant

rows = Table()
rows.elementwise(
    {
        "Relu": torch.relu,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "Exp": torch.exp,
        "Log": torch.log,
        "Sqrt": torch.sqrt,
        "Erf": torch.erf,
        "HardSwish": F.hardswish,
        "Mish": F.mish,
        "Abs": torch.abs,
        "Neg": torch.neg,
        "Reciprocal": torch.reciprocal,
        "Sin": torch.sin,
        "Cos": torch.cos,
        "Tan": torch.tan,
        "Asin": torch.asin,
        "Acos": torch.acos,
        "Atan": torch.atan,
        "Sinh": torch.sinh,
        "Cosh": torch.cosh,
        "Asinh": torch.asinh,
        "Acosh": torch.acosh,
        "Atanh": torch.atanh,
        "Identity": torch.clone,
        "Softsign": F.softsign,
        "Add": torch.add,
        "Sub": torch.sub,
        "Mul": torch.mul,
        "Where": torch.where,
    },
)
rows.elementwise(
    {"Floor": torch.floor, "Ceil": torch.ceil, "Round": torch.round, "Sign": torch.sign},
    gradient=UNDERIVED,
)


def with_alpha(function: Plan, op: Any, x: Tensor) -> Any:
    return function(x, op.alpha)


rows.native("LeakyRelu")(partial(with_alpha, F.leaky_relu))
rows.native("Elu")(partial(with_alpha, F.elu))
rows.native("Celu")(partial(with_alpha, F.celu))


@rows.native("Swish")
@planned
def swish(op: Any, x: Tensor) -> Plan:
    """Composed (of sigmoid) with another alpha than 1."""
    alpha = op.alpha
    return F.silu if alpha == 1 else lambda x: x * torch.sigmoid(alpha * x)


@rows.composed("SwiGLU")
@planned
def swiglu(op: Any, a: Tensor, b: Tensor) -> Plan:
    gate = swish.plan(op, a)
    return lambda a, b: gate(a) * b


@rows.native("Mod", stopped=(1,))
@planned
def mod(op: Any, a: Tensor, b: Tensor) -> Plan:
    plan: Plan = torch.fmod if op.fmod else torch.remainder
    return plan


# Its erf has an absolute error of 11 u (oneDNN's, contiguous inputs; measured: 10.9 over 10^5
# values) or 7 u (torch's own, other layouts; 6.8), also near 0: 1 + erf has to be granted it. On
# AVX-512 oneDNN stores by the processor's conversion to bfloat16, which knows no subnormal number.
@rows.native("Gelu", arithmetic="F", ulps={"erf": 8.0, "add": 4.0}, flushes=True)
def gelu(op: Any, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=op.approximate)


@rows.native("Softplus")
@planned
def softplus(op: Any, x: Tensor) -> Plan:
    """The identity above a threshold, which torch sets where float32 cannot tell: at 20."""
    return partial(F.softplus, threshold=40) if x.dtype == torch.float64 else F.softplus


@rows.native("Div")
@planned
def divide(op: Any, a: Tensor, b: Tensor) -> Plan:
    """The quotient; of integers truncated towards zero, as ONNX has it."""
    return torch.div if a.dtype.is_floating_point else partial(torch.div, rounding_mode="trunc")


@rows.native("Pow")
@planned
def power(op: Any, x: Tensor, y: Tensor) -> Plan:
    kept = x.dtype == y.dtype
    return torch.pow if kept else lambda x, y: torch.pow(x, y).to(x.dtype)


def several(of_two: Plan, op: Any, *tensors: Tensor) -> Plan:
    """One function for two inputs; composed for more."""
    if len(tensors) < 3:
        return of_two if len(tensors) == 2 else torch.clone
    return lambda *tensors: reduce(of_two, tensors)


for _operator, _function in (("Max", torch.maximum), ("Min", torch.minimum)):
    _source = f"https://docs.pytorch.org/docs/2.13/generated/torch.{_function.__name__}.html"
    rows.native(_operator, propagates_nan=True, source=_source)(
        planned(partial(several, _function))
    )
rows.native("Sum")(planned(partial(several, torch.add)))


@rows.composed("Mean")
def mean(op: Any, *tensors: Tensor) -> Tensor:
    return reduce(torch.add, tensors) / len(tensors)


@rows.native("Shrink")
@planned
def shrink(op: Any, x: Tensor) -> Plan:
    """Composed (of where) with a bias that is neither 0 nor the threshold."""
    bias, lambd = op.bias, op.lambd
    if bias in (0, lambd):
        return partial(F.hardshrink if bias == 0 else F.softshrink, lambd=lambd)
    return lambda x: torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, 0))


# torch differentiates by the bounds too, ONNX does not
@rows.native("Clip", stopped=(1, 2))
@planned
def clip(op: Any, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Plan:
    if low is None and high is None:
        function: Plan = torch.clone
        return function
    return lambda x, low=None, high=None: torch.clamp(x, constant(low), constant(high))


SELU = (1.6732631921768188, 1.0507010221481323)
"""torch's alpha and gamma, as float32 has them."""
HARD = (0.1666666716337204, 0.5)
"""The line of torch's hardsigmoid, as float32 has it."""


@rows.native("ThresholdedRelu")
def thresholded_relu(op: Any, x: Tensor) -> Tensor:
    return F.threshold(x, op.alpha, 0.0)


@rows.native("Selu")
@planned
def selu(op: Any, x: Tensor) -> Plan:
    """Composed (of elu) with other constants than torch's, of which float32 has ONNX's."""
    alpha, gamma = op.alpha, op.gamma
    own = (alpha, gamma) == SELU and x.dtype != torch.float64
    return F.selu if own else lambda x: gamma * F.elu(x, alpha)


@rows.native("HardSigmoid")
@planned
def hard_sigmoid(op: Any, x: Tensor) -> Plan:
    """Composed (of a line and clamp) for another line than torch's."""
    alpha, beta = op.alpha, op.beta
    own = (alpha, beta) == HARD and x.dtype != torch.float64
    return F.hardsigmoid if own else lambda x: torch.clamp(alpha * x + beta, 0, 1)


@rows.native("PRelu")
@planned
def prelu(op: Any, x: Tensor, slope: Tensor) -> Plan:
    slopes(x, slope)
    return lambda x, slope: F.prelu(x, slope.reshape(-1))


def slopes(x: Tensor, slope: Tensor) -> int:
    """How many slopes there are: one, or one a channel. Raises `Unsupported`."""
    aligned = (1,) * (x.ndim - slope.ndim) + tuple(slope.shape)
    channels = (1, *x.shape[1:2], *(1 for _ in x.shape[2:]))
    if slope.numel() != 1 and aligned != channels:
        raise Unsupported("F.prelu has one slope, or one a channel")
    return math.prod(slope.shape)
