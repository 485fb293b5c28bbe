"""Cases of attention: grouped heads, masks of both kinds, windows, a past, padded keys."""

from __future__ import annotations

from d5test.case import Tensor
from d5test.reference.operators import attention as ops
from d5test.strategies.draw import Draw, Regime, Shape
from d5test.strategies.registry import attributes, inputs

SCORES: tuple[Regime, ...] = ("normal", "uniform", "onehot", ("scaled", -3))
"""Regimes in which a softmax does not degenerate to a choice of one key."""


@attributes(ops.Attention)
def attention_attributes(d: Draw) -> ops.Attention:
    """Heads as an axis or folded into the last one; each stage of the scores as an output."""
    folded = d.flag()
    kv = d.integer(1, 2)
    windows = d.flag()
    return ops.Attention(
        is_causal=d.choose((0, 1)),
        kv_num_heads=kv if folded else None,
        left_window_size=d.integer(-1, 2) if windows else -1,
        q_num_heads=kv * d.integer(1, 3) if folded else None,
        qk_matmul_output_mode=d.integer(0, 3),
        right_window_size=d.integer(-1, 2) if windows else -1,
        scale=d.maybe(d.choose((0.25, 1.0))),
        softcap=d.choose((0.0, 2.0)),
    )


@inputs(ops.Attention)
def attention_inputs(d: Draw, op: ops.Attention) -> tuple[Tensor | None, ...]:
    """q, k and v; a mask; and either a past or the number of keys that count."""
    kv = op.kv_num_heads or d.integer(1, 2)
    heads = op.q_num_heads or kv * d.integer(1, 3)
    n = d.side(most=3, empty=True)
    queries, keys, width, value_width = d.sides(4, most=5)
    cache = d.choose(("none", "none", "past", "padded"))
    past = d.side(most=3) if cache == "past" else 0
    total = past + keys

    def tensor(heads: int, length: int, width: int) -> Tensor:
        folded = op.q_num_heads is not None
        shape = (n, length, heads * width) if folded else (n, heads, length, width)
        return d.tensor(shape, *SCORES)

    q, k = tensor(heads, queries, width), tensor(kv, keys, width)
    drawn: list[Tensor | None] = [q, k, tensor(kv, keys, value_width)]
    mask = attention_mask(d, (n, heads, queries, total))
    drawn.append(mask)
    if cache == "past":
        drawn.append(d.tensor((n, kv, past, width), *SCORES))
        drawn.append(d.tensor((n, kv, past, value_width), *SCORES))
    elif cache == "padded":
        # ONNX wants the mask to be as long as the longest of them, at least
        most = keys if mask is None else mask.shape[-1]
        lengths = d.literal([d.integer(1, most) for _ in range(n)])
        drawn += [None, None, lengths]
    elif drawn[-1] is None and d.flag():
        drawn.pop()
    return tuple(drawn)


def attention_mask(d: Draw, scores: Shape) -> Tensor | None:
    """Nothing, booleans or floats of a shape that broadcasts to the scores'.

    The last axis may be shorter than all keys.
    """
    kind = d.choose(("none", "boolean", "float"))
    if kind == "none":
        return None
    total = scores[-1] - (scores[-1] > 2 and d.flag())
    leading = d.choose((scores[2:3], d.broadcastable(scores[:3]), scores[:3]))
    shape = (*leading, total)
    return d.mask(shape, 0.75) if kind == "boolean" else d.tensor(shape, "normal", "uniform")
