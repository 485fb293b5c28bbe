"""Losses of class labels."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, planned
from d5test.backends.torch.arguments import constant

rows = Table()


def loss(function: Plan, op: Any, x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Plan:
    """Weights have no gradient; no label is -100, torch's ignored one."""
    ignored = -100 if op.ignore_index is None else op.ignore_index
    given = partial(function, ignore_index=ignored, reduction=op.reduction)
    if weight is None and labels.dtype == torch.int64:
        return given
    return lambda x, labels, weight=None: given(x, labels.long(), constant(weight))


# F.cross_entropy keeps its log-probabilities to itself: left out
rows.native("SoftmaxCrossEntropyLoss", outputs=1)(planned(partial(loss, F.cross_entropy)))
rows.native("NegativeLogLikelihoodLoss")(planned(partial(loss, F.nll_loss)))
