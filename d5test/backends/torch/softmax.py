"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Table

rows = Table()


@rows.native("Softmax")
def softmax(op: Any, x: Tensor) -> Tensor:
    return torch.softmax(x, op.axis)


@rows.native("LogSoftmax")
def log_softmax(op: Any, x: Tensor) -> Tensor:
    return torch.log_softmax(x, op.axis)
