"""Products of matrices; attention, and dropout."""

from typing import Any

from d5test.backends.base import Plan, Table, Unsupported, padded, planned
from d5test.backends.jax.framework import Array, jnp, nn

rows = Table()
rows.elementwise({"MatMul": jnp.matmul})


@rows.native("Det", arithmetic="S")
@planned
def det(op: Any, x: Array) -> Plan:
    if x.dtype.itemsize < 4 and x.shape[-1] > 3:
        raise Unsupported("jax's factorisations have no numbers of 16 bits")
    plan: Plan = jnp.linalg.det
    return plan


@rows.composed("Gemm", arithmetic="S")
def gemm(op: Any, a: Array, b: Array, c: Array | None = None) -> Array:
    y = op.alpha * jnp.matmul(a.T if op.transA else a, b.T if op.transB else b)
    return y if c is None else y + op.beta * c


# of three operands, or where axes of one are summed first: an intermediate result is stored
@rows.native("Einsum", arithmetic="S")
def einsum(op: Any, *xs: Array) -> Array:
    return jnp.einsum(op.equation, *xs)


@rows.composed("Dropout", values=(1, 2), outputs=1)
@planned
def dropout(op: Any, x: Array, ratio: Any = None, train: Any = None) -> Plan:
    if train is not None and train.ndim:
        return masked_dropout
    if train is not None and bool(train) and (ratio is None or float(ratio)):
        raise Unsupported("jax has no function that drops")
    return lambda x, *_: x


def masked_dropout(x: Array, ratio: Any, mask: Array) -> Array:
    return (x * mask * (1 / (1 - (0.5 if ratio is None else ratio)))).astype(x.dtype)


@rows.native("Attention", outputs=3)
def attention(op: Any, q: Array, k: Array, v: Array, *optional: Any) -> Any:
    """Composed (padded first, cut afterwards) if the heads of K and V differ in size."""
    mask, past_k, past_v, lengths = padded(optional, 4)
    flat = q.ndim == 3
    if flat:
        q = q.reshape(*q.shape[:2], op.q_num_heads, -1)
        k, v = (t.reshape(*t.shape[:2], op.kv_num_heads, -1) for t in (k, v))
    else:
        q, k, v = (t.swapaxes(1, 2) for t in (q, k, v))
    if past_k is not None:
        k = jnp.concatenate([past_k.swapaxes(1, 2), k], 1)
        v = jnp.concatenate([past_v.swapaxes(1, 2), v], 1)
    if op.softcap:
        raise Unsupported("dot_product_attention has no softcap")
    if op.softmax_precision not in (None, 1):
        raise Unsupported("dot_product_attention computes its softmax in float32")
    windowed = max(op.left_window_size, op.right_window_size) >= 0
    # then jax's causal mask is ONNX's, and hides no query from all keys
    alone = past_k is None and lengths is None and mask is None and not windowed
    t, s = q.shape[1], k.shape[1]
    offset = jnp.zeros((1, 1, 1, 1), int) + (0 if past_k is None else past_k.shape[2])
    seen = None
    if lengths is not None:
        lengths = lengths.reshape(-1, 1, 1, 1)
        offset, seen = lengths - t, jnp.arange(s) < lengths
    apart = jnp.arange(s) - jnp.arange(t)[:, None] - offset
    windows = (
        (op.is_causal and not alone, apart <= 0),
        (op.left_window_size >= 0, apart >= -op.left_window_size),
        (op.right_window_size >= 0, apart <= op.right_window_size),
    )
    for bounded, inside in windows:
        if bounded:
            seen = inside if seen is None else seen & inside
    bias = None
    if mask is not None:
        mask = mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)
        columns = mask.shape[3]
        mask = jnp.pad(mask, [(0, 0)] * 3 + [(0, s - columns if columns > 1 else 0)])
        if mask.dtype == bool:
            seen = mask if seen is None else seen & mask
        else:
            bias = mask
            if 1 < columns < s:
                there = (jnp.arange(s) < columns).reshape(1, 1, 1, s)
                seen = there if seen is None else seen & there
    # K and V have to be alike: zeros at the end of a head change neither the scores nor the values
    head, width = q.shape[3], v.shape[3]
    pads = [(0, 0)] * 3
    q_, k_ = (jnp.pad(t, [*pads, (0, max(width - head, 0))]) for t in (q, k))
    v_ = jnp.pad(v, [*pads, (0, max(head - width, 0))])
    scale = head**-0.5 if op.scale is None and head else op.scale
    y = nn.dot_product_attention(
        q_, k_, v_, bias, seen, scale=scale, is_causal=bool(op.is_causal and alone)
    )[..., :width]
    if seen is not None:  # where ONNX wants zeros, jax averages over the keys that are masked
        y = jnp.where(seen.any(-1, keepdims=True).swapaxes(1, 2), y, 0)
    y = y.reshape(*y.shape[:2], -1) if flat else y.swapaxes(1, 2)
    return y, k.swapaxes(1, 2), v.swapaxes(1, 2)


@rows.composed("RotaryEmbedding", arithmetic="S")
def rotary_embedding(op: Any, x: Array, cos: Array, sin: Array, ids: Array | None = None) -> Array:
    cos, sin = (cos, sin) if ids is None else (cos[ids], sin[ids])
    cos, sin = cos[:, None], sin[:, None]
    y, heads = x, op.num_heads
    if heads is not None:
        y = x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)
    y, rest = jnp.split(y, [op.rotary_embedding_dim or y.shape[3]], 3)
    a, b = (y[..., ::2], y[..., 1::2]) if op.interleaved else jnp.split(y, 2, 3)
    pairs = a * cos - b * sin, a * sin + b * cos
    y = jnp.stack(pairs, 4).reshape(y.shape) if op.interleaved else jnp.concatenate(pairs, 3)
    y = jnp.concatenate((y, rest), 3)
    return y if heads is None else y.swapaxes(1, 2).reshape(x.shape)
