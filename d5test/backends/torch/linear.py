"""Products of matrices; attention, and dropout."""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, padded, planned

rows = Table()
rows.elementwise({"Det": torch.linalg.det}, dtypes=("float64", "float32"))
rows.elementwise({"MatMul": torch.matmul})


def gemm(op: Any, a: Tensor, b: Tensor, c: Tensor | None = None) -> Plan:
    multiply = product(op, c)
    left, right = bool(op.transA), bool(op.transB)
    if not (left or right):
        return multiply
    return lambda a, b, c=None: multiply(a.t() if left else a, b.t() if right else b, c)


rows.native("Gemm")(planned(gemm))


def product(op: Any, c: Tensor | None) -> Plan:
    """The product of two matrices, scaled, and c added to it, scaled too."""
    alpha, beta = op.alpha, op.beta
    if c is None:
        if alpha == 1:
            return lambda a, b, c=None: torch.mm(a, b)
        return lambda a, b, c=None: torch.addmm(a.new_zeros(()), a, b, beta=0, alpha=alpha)
    if alpha == beta == 1:
        return lambda a, b, c: torch.addmm(c, a, b)
    return lambda a, b, c: torch.addmm(c, a, b, beta=beta, alpha=alpha)


# of three operands: an intermediate product is stored
@rows.native("Einsum", arithmetic="S")
def einsum(op: Any, *tensors: Tensor) -> Tensor:
    return torch.einsum(op.equation, *tensors)


def attention(op: Any, q: Tensor, k: Tensor, v: Tensor, *optional: Tensor | None) -> Plan:
    """Composed (a mask is made) if causal as well as masked, windowed, cached or padded."""
    mask, past_k, _, valid = padded(optional, 4)
    if op.softcap or op.softmax_precision is not None:
        raise Unsupported("F.scaled_dot_product_attention has no softcap and no softmax_precision")
    merged = q.ndim == 3
    heads = (op.q_num_heads, op.kv_num_heads) if merged else (q.shape[1], k.shape[1])
    past = 0 if past_k is None else past_k.shape[2]
    queries, keys = q.shape[-2], k.shape[-2] + past
    windowed = op.left_window_size >= 0 or op.right_window_size >= 0
    causal = bool(op.is_causal)
    made = valid is not None or windowed or (causal and (mask is not None or past > 0))
    attend = partial(
        F.scaled_dot_product_attention,
        is_causal=causal and not made,
        scale=op.scale,
        enable_gqa=heads[0] != heads[1],
    )
    if not (merged or past or made or mask is not None):
        return lambda q, k, v, *_: attend(q, k, v)

    def call(q: Tensor, k: Tensor, v: Tensor, *optional: Tensor | None) -> Tensor:
        mask, past_k, past_v, valid = padded(optional, 4)
        if merged:
            q = q.unflatten(2, (heads[0], -1)).transpose(1, 2)
            k, v = (x.unflatten(2, (heads[1], -1)).transpose(1, 2) for x in (k, v))
        if past_k is not None and past_v is not None:
            k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        mask = whole(mask, keys)
        if made:
            offset = past if valid is None else (valid - queries).reshape(-1, 1, 1, 1)
            mask = masked(mask, seen(op, queries, keys, offset, valid, q.device))
        y = attend(q, k, v, mask)
        return y.transpose(1, 2).flatten(2) if merged else y

    return call


rows.native("Attention", outputs=1)(planned(attention))


def whole(mask: Tensor | None, keys: int) -> Tensor | None:
    """The mask with both axes, which torch wants, and a column for each key."""
    if mask is None:
        return None
    mask = mask[None] if mask.ndim == 1 else mask
    if mask.shape[-1] == keys:
        return mask
    rest = (0, keys - mask.shape[-1])
    return F.pad(mask, rest, value=False if mask.dtype == torch.bool else -math.inf)


def seen(
    op: Any, queries: int, keys: int, offset: Any, valid: Tensor | None, device: torch.device
) -> Tensor:
    """Which keys each query sees."""
    j = torch.arange(keys, device=device)
    at = torch.arange(queries, device=device)[:, None] + offset
    visible = j < keys if valid is None else j < valid.reshape(-1, 1, 1, 1)
    visible = visible & (j <= at) if op.is_causal else visible
    left, right = op.left_window_size, op.right_window_size
    visible = visible & (j >= at - left) if left >= 0 else visible
    visible = visible & (j <= at + right) if right >= 0 else visible
    return visible.expand(*visible.shape[:-2], queries, keys)


def masked(mask: Tensor | None, visible: Tensor) -> Tensor:
    """A mask, Boolean or added to the scores, for the keys that are seen besides."""
    if mask is None:
        return visible
    return mask & visible if mask.dtype == torch.bool else torch.where(visible, mask, -math.inf)


@rows.native("Dropout", values=(1, 2), outputs=1)
@planned
def dropout(op: Any, x: Tensor, ratio: Tensor | None = None, train: Tensor | None = None) -> Plan:
    """Composed with the mask given."""
    if train is not None and train.ndim:
        return masked_dropout
    rate, trains = 0.5 if ratio is None else float(ratio), train is not None and bool(train)
    return lambda x, *_: F.dropout(x, rate, trains)


def masked_dropout(x: Tensor, ratio: Tensor | None, mask: Tensor) -> Tensor:
    return x * mask * (1 / (1 - (0.5 if ratio is None else ratio)))


@rows.composed("RotaryEmbedding", arithmetic="S")
def rotary_embedding(
    op: Any, x: Tensor, cos: Tensor, sin: Tensor, ids: Tensor | None = None
) -> Tensor:
    cos, sin = (cos, sin) if ids is None else (cos[ids], sin[ids])
    cos, sin = cos[:, None], sin[:, None]
    y = x if op.num_heads is None else x.unflatten(2, (op.num_heads, -1)).transpose(1, 2)
    y, rest = y.tensor_split([op.rotary_embedding_dim or y.shape[3]], 3)
    a, b = (y[..., ::2], y[..., 1::2]) if op.interleaved else y.chunk(2, 3)
    pairs = a * cos - b * sin, a * sin + b * cos
    y = torch.stack(pairs, 4).flatten(3) if op.interleaved else torch.cat(pairs, 3)
    y = torch.cat((y, rest), 3)
    return y if op.num_heads is None else y.transpose(1, 2).flatten(2)
