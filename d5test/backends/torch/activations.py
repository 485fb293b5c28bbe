"""Activations with attributes, or with slopes that are learned."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, planned

rows = Table()
SELU = (1.6732631921768188, 1.0507010221481323)
"""torch's alpha and gamma, as float32 has them."""
HARD = (0.1666666716337204, 0.5)
"""The line of torch's hardsigmoid, as float32 has it."""


@rows.native("Elu")
def elu(op: Any, x: Tensor) -> Tensor:
    return F.elu(x, op.alpha)


@rows.native("Celu")
def celu(op: Any, x: Tensor) -> Tensor:
    return F.celu(x, op.alpha)


@rows.native("ThresholdedRelu")
def thresholded_relu(op: Any, x: Tensor) -> Tensor:
    return F.threshold(x, op.alpha, 0.0)


@rows.native("Selu")
@planned
def selu(op: Any, x: Tensor) -> Plan:
    """Composed (of elu) with other constants than torch's, of which float32 has ONNX's."""
    if (op.alpha, op.gamma) == SELU and x.dtype != torch.float64:
        return F.selu
    alpha, gamma = op.alpha, op.gamma
    return lambda x: gamma * F.elu(x, alpha)


@rows.native("HardSigmoid")
@planned
def hard_sigmoid(op: Any, x: Tensor) -> Plan:
    """Composed (of a line and clamp) for another line than torch's."""
    if (op.alpha, op.beta) == HARD and x.dtype != torch.float64:
        return F.hardsigmoid
    alpha, beta = op.alpha, op.beta
    return lambda x: torch.clamp(alpha * x + beta, 0, 1)


@rows.native("PRelu")
@planned
def prelu(op: Any, x: Tensor, slope: Tensor) -> Plan:
    aligned = (1,) * (x.ndim - slope.ndim) + tuple(slope.shape)
    channels = (1, *x.shape[1:2], *(1 for _ in x.shape[2:]))
    if slope.numel() != 1 and aligned != channels:
        raise Unsupported("F.prelu has one slope, or one a channel")
    return lambda x, slope: F.prelu(x, slope.reshape(-1))
