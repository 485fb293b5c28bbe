"""Attention with grouped heads, masks and a cache, or a linear one; positions as rotations."""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.broadcasting import unbroadcast

__all__ = ["Attention", "LinearAttention", "RotaryEmbedding"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Attention(Operator):
    """y = softmax(q k' / sqrt(d) + mask) v, head by head. ONNX Attention-25; Vaswani et al. 2017.

    q: (n, heads, l, d), k: (n, kv, s, d), v: (n, kv, s, e); heads is a multiple of kv, and that
    many heads in a row share one of k and v (Ainslie et al. 2023). Or three axes, (n, l, heads d)
    and so on, with `q_num_heads` and `kv_num_heads`; then y has three axes too.
    attn_mask: broadcasts to (n, heads, l, total), floats to add or booleans (true: attend); its
    last axis may be shorter than total, the rest is not attended.
    past_key: (n, kv, past, d), past_value: (n, kv, past, e); total = past + s.
    nonpad_kv_seqlen: (n,) integers, how many keys of each sample count.

    Outputs y, present_key, present_value, and the scores at the stage `qk_matmul_output_mode`:
    0 scaled products, 1 after the softcap, 2 with the mask, 3 after the softmax. A query that
    attends to no key gets zeros. `softmax_precision` changes the arithmetic, not the meaning.
    ONNX has present_key and present_value not asked for where nonpad_kv_seqlen is given.
    """

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None
    since = 25
    apart = MappingProxyType({6: (1, 2)})

    def forward(
        self, q, k, v, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None
    ):
        q, k, v, _ = self._heads(q, k, v, past_key, past_value)
        allowed = self._allowed(q, k, attn_mask, past_key, nonpad_kv_seqlen)
        stages = self._scores(q, k, attn_mask, allowed)
        p = stages[3]
        y = (_grouped(p, k) @ v).reshape(*q.shape[:3], v.shape[3])
        if self.q_num_heads is not None:
            y = _join_heads(y)
        return y, k, v, stages[self.qk_matmul_output_mode]

    def backward(self, grads, inputs, outputs):
        dy, dk_present, dv_present, dscores = grads
        mask, past_key, past_value, lengths = (*inputs[3:], None, None, None, None)[:4]
        q, k, v, past = self._heads(*inputs[:3], past_key, past_value)
        allowed = self._allowed(q, k, mask, past_key, lengths)
        _, capped, _, p = self._scores(q, k, mask, allowed)
        dstage = [dscores if mode == self.qk_matmul_output_mode else 0 for mode in range(4)]
        if self.q_num_heads is not None:
            dy = _split_heads(dy, self.q_num_heads)
        dy = _grouped(dy, k)

        dp = (dy @ v.swapaxes(2, 3)).reshape(p.shape) + dstage[3]
        dv = _grouped(p, k).swapaxes(2, 3) @ dy + dv_present
        dbiased = p * (dp - (p * dp).sum(-1, keepdims=True))
        dbiased = dbiased + np.where(allowed, 1.0, 0.0) * dstage[2]
        dcapped = dbiased + dstage[1]
        dscaled = dcapped * (1 - (capped / self.softcap) ** 2) if self.softcap else dcapped
        dscaled = _grouped(dscaled + dstage[0], k)
        root = self._root(q)
        dq = (dscaled @ (k * root)).reshape(q.shape) * root
        dk = dscaled.swapaxes(2, 3) @ _grouped(q * root, k) * root + dk_present

        dpast = (None, None) if past_key is None else (dk[:, :, :past], dv[:, :, :past])
        dk, dv = dk[:, :, past:], dv[:, :, past:]
        if self.q_num_heads is not None:
            dq, dk, dv = map(_join_heads, (dq, dk, dv))
        dmask = None
        if mask is not None and not _is_boolean(mask):
            dmask = unbroadcast(dbiased[..., : mask.shape[-1]], mask.shape)
        return (dq, dk, dv, dmask, *dpast, None)[: len(inputs)]

    def batch(self, *shapes):
        n = shapes[0][0]
        mask = shapes[3] if len(shapes) > 3 else None
        along = 0 if mask is not None and len(mask) == 4 and mask[0] == n else None
        axes = (0, 0, 0, along, 0, 0, 0)[: len(shapes)]
        pairs = zip(axes, shapes, strict=True)
        return Batch(tuple(None if s is None else a for a, s in pairs), (0, 0, 0, 0))

    def multiplications(self, *shapes):
        q, k, v, *rest = shapes
        heads, kv = self.q_num_heads or q[1], self.kv_num_heads or k[1]
        past = rest[1][2] if len(rest) > 1 and rest[1] is not None else 0
        total, d = past + k[-2], q[-1] // (self.q_num_heads or 1)
        e = v[-1] // (kv if self.kv_num_heads else 1)
        return q[0] * heads * q[-2] * total * (d + e)

    def _heads(self, q, k, v, past_key, past_value):
        """q, k, v with four axes and the past in front; how long the past is."""
        if self.q_num_heads is not None:
            q = _split_heads(q, self.q_num_heads)
            k, v = _split_heads(k, self.kv_num_heads), _split_heads(v, self.kv_num_heads)
        if past_key is None:
            return q, k, v, 0
        k, v = np.concatenate((past_key, k), 2), np.concatenate((past_value, v), 2)
        return q, k, v, past_key.shape[2]

    def _allowed(self, q, k, mask, past_key, lengths):
        """Which key each query may attend to: booleans, (n, heads, l, total)."""
        n, heads, queries, _ = q.shape
        total = k.shape[2]
        key = np.arange(total)
        allowed = np.ones((n, heads, queries, total), bool)
        before = np.zeros((1, 1, 1, 1), int)
        if past_key is not None:
            before = before + past_key.shape[2]
        if lengths is not None:
            lengths = lengths.reshape(n, 1, 1, 1)
            before = lengths - queries
            allowed &= key < lengths
        query = before + np.arange(queries).reshape(queries, 1)
        if self.is_causal:
            allowed &= key <= query
        if self.left_window_size >= 0:
            allowed &= key >= query - self.left_window_size
        if self.right_window_size >= 0:
            allowed &= key <= query + self.right_window_size
        if mask is not None:
            allowed &= key < mask.shape[-1]
            if _is_boolean(mask):
                allowed[..., : mask.shape[-1]] &= mask
        return allowed

    def _scores(self, q, k, mask, allowed):
        """The four stages of the scores, (n, heads, l, total)."""
        root = self._root(q)
        scaled = (_grouped(q * root, k) @ (k * root).swapaxes(2, 3)).reshape(allowed.shape)
        capped = self.softcap * np.tanh(scaled / self.softcap) if self.softcap else scaled
        biased = capped
        if mask is not None and not _is_boolean(mask):
            missing = allowed.shape[-1] - mask.shape[-1]
            biased = capped + np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)])
        # What is not allowed is replaced, not sent to -inf, which would be nan in empty rows.
        largest = np.where(allowed, biased, biased.min(-1, keepdims=True)).max(-1, keepdims=True)
        e = np.exp(np.where(allowed, biased, largest) - largest)
        e = np.where(allowed, e, np.zeros_like(e))
        total = e.sum(-1, keepdims=True)
        p = e / np.where(allowed.any(-1, keepdims=True), total, np.ones_like(total))
        return scaled, capped, np.where(allowed, biased, np.full_like(biased, -np.inf)), p

    def _root(self, q):
        """The square root of the scale, which multiplies q as well as k."""
        scale = 1 / math.sqrt(q.shape[3]) if self.scale is None else self.scale
        return math.sqrt(scale)


@dataclass(frozen=True, kw_only=True, repr=False)
class LinearAttention(Operator):
    """y = s q' S of a state S = e^g S + k u', step by step. ONNX LinearAttention-27.

    u is v by the rules "linear" and "gated", b (v - e^g S' k) by "delta" and "gated_delta"; g is 0
    by "linear" and "delta". Yang et al. 2024, 2025.
    query: (n, l, heads d), key: (n, l, kv d), value: (n, l, kv e): `q_num_heads` in a row share
    one of `kv_num_heads`. past_state: (n, kv, d, e); decay, the g: (n, l, kv d) or (n, l, kv);
    beta, the b: (n, l, kv) or (n, l, 1). `scale`, the s: 1 / sqrt(d) where it is 0.
    Outputs y, (n, l, heads e), and the last state; ONNX has no gradient of either state.
    `chunk_size` changes the arithmetic, not the meaning.
    """

    chunk_size: int = 64
    kv_num_heads: int | None = None
    q_num_heads: int | None = None
    scale: float = 0.0
    update_rule: str = "gated_delta"
    since = 27
    stopped_outputs = (1,)

    def forward(self, *inputs):
        steps = self._steps(*inputs)
        y = np.stack([self._scale(step.k) * (step.q @ step.state) for step in steps], 3)
        return _join_heads(y.reshape(len(y), self.q_num_heads, *y.shape[3:])), steps[-1].state

    def backward(self, grads, inputs, outputs):
        (dy, _), (*_, decay, beta) = grads, (*inputs, *(None,) * 3)[:6]
        steps = self._steps(*inputs)
        dy = self._grouped(dy)
        dstate = np.zeros_like(dy, shape=steps[0].state.shape)
        flows = []
        for i, step in reversed(list(enumerate(steps))):
            do = self._scale(step.k) * dy[:, :, :, i]
            dstate = dstate + step.q.swapaxes(2, 3) @ do
            du, dk = step.k @ dstate, step.u @ dstate.swapaxes(2, 3)
            dbeta = np.einsum("nkie,nkie->nki", du, step.missing)
            if beta is not None:
                du = step.beta * du
                dk = dk - du @ step.faded.swapaxes(2, 3)
                dstate = dstate - step.k.swapaxes(2, 3) @ du
            ddecay = np.einsum("nkde,nkde->nkd", dstate, step.faded)
            dstate = dstate * step.kept
            dq = do @ step.state.swapaxes(2, 3)
            flows.insert(0, (dq, dk[:, :, 0], du[:, :, 0], ddecay, dbeta))
        dq, dk, dv, ddecay, dbeta = (np.stack(d, -2) for d in zip(*flows, strict=True))
        if decay is not None and decay.shape[2] == self.kv_num_heads:
            ddecay = ddecay.sum(3, keepdims=True)
        if beta is not None and beta.shape[2] == 1:
            dbeta = dbeta.sum(1, keepdims=True)
        dq = dq.reshape(len(dq), self.q_num_heads, *dq.shape[3:])
        ddecay, dbeta = (None if x is None else dx for x, dx in ((decay, ddecay), (beta, dbeta)))
        found = (dq, dk, dv, None, ddecay, dbeta)
        return tuple(None if d is None else _join_heads(d) for d in found)[: len(inputs)]

    def batch(self, *shapes):
        return Batch(tuple(None if s is None else 0 for s in shapes), (0, 0))

    def _steps(self, query, key, value, past_state=None, decay=None, beta=None):
        """Each step, with one row of k, and as many of q as share it."""
        q, kv = self._grouped(query), self.kv_num_heads
        k, v = _split_heads(key, kv), _split_heads(value, kv)
        state = past_state
        if state is None:
            state = np.zeros_like(k, shape=(*k.shape[:2], k.shape[3], v.shape[3]))
        kept = None if decay is None else np.exp(_split_heads(decay, kv))[..., None]
        beta = None if beta is None else _split_heads(beta, beta.shape[2])[..., None]
        steps = []
        for i in range(k.shape[2]):
            row, missing = k[:, :, i : i + 1], v[:, :, i : i + 1]
            at = 1.0 if kept is None else kept[:, :, i]
            faded = state if kept is None else at * state
            rate = None if beta is None else beta[:, :, i]
            missing = missing if rate is None else missing - row @ faded
            u = missing if rate is None else rate * missing
            state = faded + row.swapaxes(2, 3) * u
            steps.append(Step(q[:, :, :, i], row, u, missing, rate, at, faded, state))
        return steps

    def _grouped(self, x):
        """(n, l, heads d) to (n, kv, heads / kv, l, d)."""
        x = _split_heads(x, self.q_num_heads)
        return x.reshape(len(x), self.kv_num_heads, -1, *x.shape[2:])

    def _scale(self, k):
        return self.scale or 1 / math.sqrt(k.shape[3])


class Step(NamedTuple):
    """A step of linear attention: what is multiplied, and the state before and after it."""

    q: Any
    k: Any
    u: Any
    missing: Any
    beta: Any
    kept: Any
    faded: Any
    state: Any


@dataclass(frozen=True, kw_only=True, repr=False)
class RotaryEmbedding(Operator):
    """Pairs of elements, each turned by the angle of its position. ONNX RotaryEmbedding-23.

    Su et al. 2021. x, y: (n, heads, l, d), or (n, l, heads d) with `num_heads`. Of each head the
    first r = `rotary_embedding_dim` elements are turned, all if that is 0: element i with
    i + r / 2, or with its neighbour if `interleaved`.
    cos_cache, sin_cache: (n, l, r / 2), or (positions, r / 2) with position_ids (n, l).
    """

    interleaved: int = 0
    num_heads: int | None = None
    rotary_embedding_dim: int = 0
    since = 23

    def forward(self, x, cos_cache, sin_cache, position_ids=None):
        return self._turned(x, *_at(position_ids, cos_cache, sin_cache))

    def backward(self, grads, inputs, outputs):
        (dy,), (x, *caches, ids) = grads, (*inputs, None)[:4]
        cos, sin = _at(ids, *caches)
        (a, b, _), (da, db, _) = self._pairs(x), self._pairs(dy)
        # the transposed rotation is the one by the opposite angle
        dcos = _product_of_pairs((a, b), (da, db))
        dsin = _product_of_pairs((a, b), (db, -da))
        if ids is not None:
            dcos, dsin = (_added_up(ids, d, c) for d, c in zip((dcos, dsin), caches, strict=True))
        return (self._turned(dy, cos, -sin), dcos, dsin, None)[: len(inputs)]

    def batch(self, *shapes):
        along = 0 if len(shapes[1]) == 3 else None
        return Batch((0, along, along, 0)[: len(shapes)], (0,))

    def _turned(self, x, cos, sin):
        a, b, rest = self._pairs(x)
        cos, sin = cos[:, None], sin[:, None]
        pairs = np.stack((cos * a - sin * b, sin * a + cos * b), self._axis)
        y = np.concatenate((pairs.reshape(*a.shape[:3], 2 * a.shape[3]), rest), 3)
        return y if self.num_heads is None else _join_heads(y)

    def _pairs(self, x):
        """First and second elements of the pairs, (n, heads, l, r / 2), and what is not turned."""
        x = x if self.num_heads is None else _split_heads(x, self.num_heads)
        r = self.rotary_embedding_dim or x.shape[3]
        sides = (r // 2, 2) if self.interleaved else (2, r // 2)
        pairs = x[..., :r].reshape(*x.shape[:3], *sides)
        return *np.moveaxis(pairs, self._axis, 0), x[..., r:]

    @property
    def _axis(self):
        """The axis of the two elements of a pair, which are neighbours or half a head apart."""
        return 4 if self.interleaved else 3


def _at(ids, *caches):
    """The caches at each position, (n, l, r / 2)."""
    return caches if ids is None else tuple(cache[ids] for cache in caches)


def _product_of_pairs(x, y):
    """Inner products of pairs, summed over heads: one sum. (n, l, r / 2)."""
    return np.einsum("pnhlr,pnhlr->nlr", np.stack(x), np.stack(y))


def _added_up(ids, dx, cache):
    """Gradients at positions, added up where these are in the cache."""
    dcache = np.zeros_like(dx, shape=cache.shape)
    np.add.at(dcache, ids, dx)
    return dcache


def _split_heads(x, heads):
    """(n, l, heads d) to (n, heads, l, d)."""
    n, length, width = x.shape
    return x.reshape(n, length, heads, width // heads).transpose(0, 2, 1, 3)


def _join_heads(x):
    """(n, heads, l, d) to (n, l, heads d)."""
    n, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(n, length, heads * width)


def _grouped(x, k):
    """(n, heads, l, ...) to (n, kv, heads / kv l, ...): the rows that share a head of k."""
    n, heads, queries, width = x.shape
    return x.reshape(n, k.shape[1], heads // k.shape[1] * queries, width)


def _is_boolean(mask):
    return mask.dtype == np.bool_
