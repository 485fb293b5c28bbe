"""Products of matrices; attention, and dropout."""

import math
from functools import partial
from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, padded, planned
from d5test.backends.tensorflow.framework import numbers, tf

rows = Table()
rows.elementwise({"Det": tf.linalg.det}, dtypes=("float64", "float32"))
OVERRUN = "oneDNN writes past the end of a product (tensorflow#117700, uxlfoundation/oneDNN#4396)"
"""Of matrices in batches of (n, 1) by one that all share, where it has more than one thread, or
much to do. Calls that come later crash, so that nothing may be asked there."""


def refuse_overrun(a: Any, b: Any) -> None:
    """Raise `Unsupported` where a product, or its gradient, would write into others' memory."""
    batches, shared = a.shape[:-2], math.prod(b.shape[:-2]) == 1
    several = len(batches) == 2 and batches[0] > 1 and batches[1] == 1 and a.shape[-2] > 1
    if several and shared and a.dtype.name in ("float32", "bfloat16") and "GPU" not in a.device:
        raise Unsupported(f"known failure: {OVERRUN}")


@rows.native("MatMul", arithmetic="S")
@planned
def matmul(op: Any, a: Any, b: Any) -> Plan:
    row, column = a.ndim == 1, b.ndim == 1
    refuse_overrun(a, b)

    def call(a: Any, b: Any) -> Any:
        y = tf.matmul(a[None] if row else a, b[:, None] if column else b)
        y = tf.squeeze(y, -1) if column else y
        return tf.squeeze(y, -2 + column) if row else y

    return call if row or column else tf.matmul


@rows.composed("Gemm", arithmetic="S")
def gemm(op: Any, a: Any, b: Any, c: Any = None) -> Any:
    y = tf.matmul(a, b, transpose_a=bool(op.transA), transpose_b=bool(op.transB))
    y = y if op.alpha == 1 else op.alpha * y
    return y if c is None else y + (c if op.beta == 1 else op.beta * c)


@rows.native("Einsum", arithmetic="S")
@planned
def einsum(op: Any, *inputs: Any) -> Plan:
    if "..." in op.equation and len(inputs) == 2:
        refuse_overrun(*inputs)
    return partial(tf.einsum, op.equation.replace(" ", ""))


@rows.composed("Dropout", values=(1, 2), outputs=1)
@planned
def dropout(op: Any, x: Any, ratio: Any = None, train: Any = None) -> Plan:
    if train is not None and train.ndim:
        return masked_dropout
    if train is not None and numbers(train)[0]:
        (rate,) = [0.5] if ratio is None else numbers(ratio)
        return lambda x, *_: tf.nn.dropout(x, rate)
    return lambda x, *_: tf.identity(x)


def masked_dropout(x: Any, ratio: Any, mask: Any) -> Any:
    dropped = 0.5 if ratio is None else tf.cast(ratio, x.dtype)
    return tf.cast(mask, x.dtype) * x * (1 / (1 - dropped))


@rows.composed("Attention", arithmetic="S")
def attention(op: Any, q: Any, k: Any, v: Any, *optional: Any) -> Any:
    mask, past_k, past_v, valid = padded(optional, 4)
    merged = q.ndim == 3
    if merged:
        heads = (op.q_num_heads, op.kv_num_heads, op.kv_num_heads)
        q, k, v = (
            tf.transpose(tf.reshape(x, (*x.shape[:2], n, -1)), (0, 2, 1, 3))
            for x, n in zip((q, k, v), heads, strict=True)
        )
    offset: Any = 0
    if past_k is not None:
        offset = past_k.shape[2]
        k, v = tf.concat((past_k, k), 2), tf.concat((past_v, v), 2)
    present = k, v
    queries, keys = q.shape[2], k.shape[2]
    k, v = (tf.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scale = math.sqrt(1 / math.sqrt(q.shape[3]) if op.scale is None else op.scale)
    scaled = tf.matmul(q * scale, k * scale, transpose_b=True)
    capped = op.softcap * tf.tanh(scaled / op.softcap) if op.softcap else scaled
    biased, lowest = capped, tf.constant(-math.inf, scaled.dtype)
    j = tf.range(keys)
    seen = tf.ones_like(scaled, tf.bool)
    if valid is not None:
        valid = tf.reshape(tf.cast(valid, tf.int32), (-1, 1, 1, 1))
        offset, seen = valid - queries, seen & (j < valid)
    at = tf.range(queries)[:, None] + offset
    seen = seen & (j <= at) if op.is_causal else seen
    seen = seen & (j >= at - op.left_window_size) if op.left_window_size >= 0 else seen
    seen = seen & (j <= at + op.right_window_size) if op.right_window_size >= 0 else seen
    if mask is not None:
        rest = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
        if mask.dtype == tf.bool:
            seen = seen & tf.pad(mask, rest)
        else:
            biased += tf.pad(mask, rest, constant_values=lowest)
            seen = seen & (biased != lowest)
    # a query that sees nothing gives zeros; its softmax stays finite for the gradient's sake
    none = ~tf.reduce_any(seen, -1, keepdims=True)
    shown = tf.where(seen, biased, tf.where(none, tf.zeros_like(lowest), lowest))
    wide = PRECISIONS.get(op.softmax_precision, q.dtype)
    p = tf.cast(tf.nn.softmax(tf.cast(shown, wide)), q.dtype)
    p = tf.where(none, tf.zeros_like(p), p)
    y = tf.matmul(p, v)
    if merged:
        y = tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (y.shape[0], queries, -1))
    stages = scaled, capped, tf.where(seen, biased, lowest), p
    return y, *present, stages[op.qk_matmul_output_mode]


@rows.composed("RotaryEmbedding", arithmetic="S")
def rotary_embedding(op: Any, x: Any, cos: Any, sin: Any, ids: Any = None) -> Any:
    cos, sin = (cos, sin) if ids is None else (tf.gather(cos, ids), tf.gather(sin, ids))
    cos, sin = cos[:, None], sin[:, None]
    y, heads = x, op.num_heads
    if heads is not None:
        y = tf.transpose(tf.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads)), (0, 2, 1, 3))
    r = op.rotary_embedding_dim or y.shape[3]
    y, rest = y[..., :r], y[..., r:]
    a, b = (y[..., ::2], y[..., 1::2]) if op.interleaved else tf.split(y, 2, 3)
    pairs = a * cos - b * sin, a * sin + b * cos
    y = tf.reshape(tf.stack(pairs, 4), y.shape) if op.interleaved else tf.concat(pairs, 3)
    y = tf.concat((y, rest), 3)
    return y if heads is None else tf.reshape(tf.transpose(y, (0, 2, 1, 3)), x.shape)


PRECISIONS = {1: tf.float32, 10: tf.float16, 11: tf.float64, 16: tf.bfloat16}
"""ONNX's numbers of floating-point dtypes."""
