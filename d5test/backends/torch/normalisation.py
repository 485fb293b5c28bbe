"""Normalisations by mean and deviation, over the batch, over axes, over groups of channels."""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.torch.arguments import constant

rows = Table()


# running statistics are buffers, through which torch never differentiates
@rows.composed("MeanVarianceNormalization")
def mean_variance(op: Any, x: Tensor) -> Tensor:
    d = x - torch.mean(x, op.axes, True)
    return d / (torch.sqrt(torch.mean(d * d, op.axes, True)) + 1e-9)


@rows.native("BatchNormalization", outputs=1, stopped=(3, 4))
@planned
def batch_normalization(
    op: Any, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor
) -> Plan:
    """The running statistics are left out: torch keeps an unbiased variance, ONNX a biased one.

    torch has no gradient of the given mean and variance.
    """
    normalise = partial(F.batch_norm, eps=op.epsilon)
    if not op.training_mode:
        return lambda x, scale, b, mean, var: normalise(x, constant(mean), constant(var), scale, b)
    if x.numel() == x.shape[1]:
        raise Unsupported("F.batch_norm trains on more than one value per channel")
    return lambda x, scale, b, *_: normalise(x, None, None, scale, b, True)


# sums of its gradient over the samples run in 16 bits
@rows.native("LayerNormalization", arithmetic="S", outputs=1)
@planned
def layer_normalization(op: Any, x: Tensor, scale: Tensor, b: Tensor | None = None) -> Plan:
    """Composed (scaled afterwards) if the scale also varies over the axes before `axis`.

    Mean and deviation are left out: torch differentiates `native_layer_norm` through neither.
    """
    shape, epsilon = tuple(x.shape[op.axis :]), op.epsilon
    present = [p for p in (scale, b) if p is not None]
    if all(p.shape == shape for p in present):
        return lambda x, scale, b=None: F.layer_norm(x, shape, scale, b, epsilon)
    if all(p.ndim <= len(shape) for p in present):
        return lambda x, scale, b=None: F.layer_norm(
            x, shape, scale.expand(shape), b if b is None else b.expand(shape), epsilon
        )

    def scaled(x: Tensor, scale: Tensor, b: Tensor | None = None) -> Tensor:
        y = F.layer_norm(x, shape, None, None, epsilon) * scale
        return y if b is None else y + b

    return scaled


@rows.native("RMSNormalization")
@planned
def rms_normalization(op: Any, x: Tensor, scale: Tensor) -> Plan:
    """Composed (scaled afterwards) if the scale also varies over the axes before `axis`."""
    shape, epsilon = tuple(x.shape[op.axis :]), op.epsilon
    if scale.shape == shape:
        return lambda x, scale: F.rms_norm(x, shape, scale, epsilon)
    if scale.ndim <= len(shape):
        return lambda x, scale: F.rms_norm(x, shape, scale.expand(shape), epsilon)
    return lambda x, scale: F.rms_norm(x, shape, None, epsilon) * scale


CENTRED = {
    "contract": "centred variance",
    "source": "https://docs.pytorch.org/docs/2.13/generated/torch.nn.GroupNorm.html",
}


@rows.native("GroupNormalization", **CENTRED)
def group_normalization(op: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x, op.num_groups, scale, bias, op.epsilon)


# scale and mean are folded into one product and one sum, in 16 bits
@rows.native("InstanceNormalization", arithmetic="S")
@planned
def instance_normalization(op: Any, x: Tensor, scale: Tensor, b: Tensor) -> Plan:
    if math.prod(x.shape[2:]) == 1:
        raise Unsupported("F.instance_norm wants more than one position")
    epsilon = op.epsilon
    return lambda x, scale, b: F.instance_norm(x, None, None, scale, b, eps=epsilon)


@rows.native("LRN")
@planned
def lrn(op: Any, x: Tensor) -> Plan:
    if op.size % 2 == 0:
        raise Unsupported("F.local_response_norm has most of an even window before, ONNX behind")
    return partial(F.local_response_norm, size=op.size, alpha=op.alpha, beta=op.beta, k=op.bias)
