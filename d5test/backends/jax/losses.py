"""Losses of class labels."""

from __future__ import annotations

from typing import Any

from d5test.backends.base import Table
from d5test.backends.jax.arguments import Array
from d5test.backends.jax.framework import jnp, nn

rows = Table()


@rows.composed("NegativeLogLikelihoodLoss")
def nll(op: Any, log_prob: Array, target: Array, weight: Array | None = None) -> Array:
    ignored = target == (-1 if op.ignore_index is None else op.ignore_index)
    if op.ignore_index is None:
        ignored = jnp.zeros_like(ignored)
    label = jnp.where(ignored, 0, target)
    w = jnp.ones(label.shape, log_prob.dtype) if weight is None else weight[label]
    w = jnp.where(ignored, 0, w)
    loss = -w * jnp.take_along_axis(log_prob, label[:, None], 1).squeeze(1)
    if op.reduction == "none":
        return loss
    return loss.sum() if op.reduction == "sum" else loss.sum() / w.sum()


@rows.composed("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(op: Any, scores: Array, *target: Array) -> Any:
    log_prob = nn.log_softmax(scores, 1)
    return nll(op, log_prob, *target), log_prob
