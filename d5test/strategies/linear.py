"""Cases of matrix products and of attention.

Products have vectors, broadcast batches, transposed factors, einsum's equations; attention has
grouped heads, masks of both kinds, windows, a past, padded keys.
"""

from d5test.case import Tensor
from d5test.reference.operators import attention, linear
from d5test.strategies.draw import MANY, MORE, Draw, Regime, Shape
from d5test.strategies.registry import attributes, choices, inputs
from d5test.strategies.sizes import DIFFERENT, TIED

FACTORS = (1.0, 0.5, -1.25, 2.0)
"""Of beta also 0, where a kernel need not read C."""
EQUATIONS = (
    "ij,jk->ik",
    "ij,jk",
    "kj,ji",
    "ji",
    "ij->ji",
    "ij->",
    "i,j->ij",
    "ii->i",
    "ii",
    "iij,jk->k",
    "bij,bjk->bik",
    "bhid,bhjd->bhij",
    "...ij,...jk->...ik",
    "...ij,...jk",
    "i...,i...->...",
    "bA,aB,ab->BA",
    "ij,ik,kl->jl",
    "ij,jk,klm->ik",
    "ij,k->i",
    "ij,jk->ki",
    "bij,bjk->kib",
)
"""Products, also transposed, traces, diagonals and sums; letters that stand in one input alone.
Without an arrow the result has its letters in the order of the alphabet."""

RARE = 25
"""Of so many matrices one may be singular: all checks of an operator together have a few."""


@inputs(linear.MatMul)
def matmul_inputs(d: Draw, op: linear.MatMul) -> tuple[Tensor, ...]:
    """Matrices, vectors, and leading axes that broadcast on either side."""
    if d.many():
        m, n = d.sides(2)
        k = MORE if m % 2 else MANY
        return d.tensor((m, k), "positive"), d.tensor((k, n), "positive")
    m, k, n = d.sides(3, empty=True)
    leading = d.sides(d.integer(0, 2), most=4, few=True)
    a: Shape = (*broadcast(d, leading), m, k)
    b: Shape = (*broadcast(d, leading), k, n)
    matrices = [(a, b)] * (4 if d.sizes.kind == DIFFERENT else 9)
    a, b = d.choose((*matrices, (a, (k,)), ((k,), b), ((k,), (k,))))
    return d.factors(a, b)


choices(linear.Gemm, alpha=FACTORS, beta=(*FACTORS, 0.0), transA=(0, 1), transB=(0, 1))


@inputs(linear.Gemm)
def gemm_inputs(d: Draw, op: linear.Gemm) -> tuple[Tensor | None, ...]:
    """With a c of any shape that broadcasts, with None in its place, and with neither.

    Where all sides are equal it is a row or a column: only there one may be taken for the other.
    Some have one row, as a layer that is asked about one sample.
    """
    m, k, n = d.sides(3, empty=True)
    free = d.sizes.kind != TIED and 0 not in d.sizes.chosen
    m = 1 if free and d.sizes.single and d.sizes.size % 2 else m
    many = d.many()
    k = (MORE if m % 2 else MANY) if many else k
    shapes = (k, m) if op.transA else (m, k), (n, k) if op.transB else (k, n)
    a, b = (d.tensor(s, "positive") for s in shapes) if many else d.factors(*shapes)
    tied = d.sizes.kind == TIED
    shape = d.choose(((n,), (1, n), (m, 1))) if tied else broadcast(d, (m, n))
    c = d.maybe(d.addend(shape))
    return (a, b, c) if c is not None or d.flag() else (a, b)


@attributes(linear.Einsum)
def einsum_attributes(d: Draw) -> linear.Einsum:
    """One of the equations, also with spaces."""
    equation = d.choose(EQUATIONS)
    return linear.Einsum(equation=equation.replace(",", " , ") if d.flag() else equation)


@inputs(linear.Einsum)
def einsum_inputs(d: Draw, op: linear.Einsum) -> tuple[Tensor, ...]:
    """A size for each letter; up to two axes, broadcast, for an ellipsis."""
    terms = op.equation.replace(" ", "").partition("->")[0].split(",")
    letters = sorted(set("".join(terms)) - {"."})
    size = dict(zip(letters, d.sides(len(letters), most=5, empty=True), strict=True))
    ellipsis = d.sides(d.integer(0, 2), most=4)
    many = d.many()
    if many:
        size[d.choose(letters)] = MANY
    shapes: list[Shape] = []
    for term in terms:
        before, dots, after = term.partition("...")
        # Every ellipsis stands for the same number of axes.
        ones = d.flag()
        middle = tuple(1 if ones and d.flag() else n for n in ellipsis) if dots else ()
        shapes.append((*(size[k] for k in before), *middle, *(size[k] for k in after)))
    return tuple(d.tensor(shape, "positive") for shape in shapes) if many else d.factors(*shapes)


def broadcast(d: Draw, shape: Shape) -> Shape:
    """The shape itself or one that broadcasts to it."""
    return d.broadcastable(shape) if d.flag() else shape


SCORES: tuple[Regime, ...] = ("normal", "uniform", "onehot", ("scaled", -3))
"""Regimes in which a softmax does not degenerate to a choice of one key."""
MASKED = 2
"""The output mode that returns scores with the mask: minus infinity has no derivative."""


@attributes(attention.Attention)
def attention_attributes(d: Draw) -> attention.Attention:
    """Heads as an axis or folded into the last one; each stage of the scores as an output."""
    folded = d.flag()
    kv = d.integer(1, 2)
    windows = d.flag()
    return attention.Attention(
        is_causal=d.choose((0, 1)),
        kv_num_heads=kv if folded else None,
        left_window_size=d.integer(-1, 2) if windows else -1,
        q_num_heads=kv * d.integer(1, 3) if folded else None,
        qk_matmul_output_mode=d.choose((0, 1, 2, 3)),
        right_window_size=d.integer(-1, 2) if windows else -1,
        scale=d.maybe(d.choose((0.25, 1.0))),
        softcap=d.choose((0.0, 2.0)),
    )


@inputs(attention.Attention)
def attention_inputs(d: Draw, op: attention.Attention) -> tuple[Tensor | None, ...]:
    """q, k and v; a mask; and either a past or the number of keys that count."""
    kv = op.kv_num_heads or d.integer(1, 2)
    heads = op.q_num_heads or kv * d.integer(1, 3)
    n = d.samples(most=3, empty=True)
    queries, keys, width, value_width = d.sides(4, most=5)
    if keys % 2 and 3 not in d.sizes.chosen:  # as most networks have it
        value_width = width
    cache = d.choose(("none", "none", "past", "padded"))
    past = d.side(most=3) if cache == "past" else 0
    total = past + keys

    folded = op.q_num_heads is not None

    def tensor(heads: int, length: int, width: int, *more: Regime) -> Tensor:
        shape = (n, length, heads * width) if folded else (n, heads, length, width)
        return d.tensor(shape, *SCORES, *more)

    alike: Regime = ("equal", 1 if folded else 2)  # keys among which nothing is preferred
    q, k = tensor(heads, queries, width), tensor(kv, keys, width, alike)
    v = tensor(kv, keys, value_width)
    masked = op.is_causal or max(op.left_window_size, op.right_window_size) >= 0
    infinite = not masked and cache != "padded" and op.qk_matmul_output_mode != MASKED
    mask = attention_mask(d, (n, heads, queries, total), infinite)
    if cache == "past":
        pasts = (d.tensor((n, kv, past, size), *SCORES) for size in (width, value_width))
        return q, k, v, mask, *pasts
    if cache == "padded":
        # ONNX wants the mask to be as long as the longest of them, at least
        most = keys if mask is None else mask.shape[-1]
        return q, k, v, mask, None, None, d.literal([d.integer(1, most) for _ in range(n)])
    return (q, k, v) if mask is None and d.flag() else (q, k, v, mask)


def attention_mask(d: Draw, scores: Shape, infinite: bool) -> Tensor | None:
    """Nothing, booleans or floats of a shape that broadcasts to the scores'.

    The last axis may be shorter than all keys. Some hide the keys behind a length of each row:
    booleans, or floats where they may be `infinite`.
    """
    kind = d.choose(("none", "boolean", "float", "lengths"))
    if kind == "none":
        return None
    total = scores[-1] - (scores[-1] > 2 and d.flag())
    leading = d.choose((scores[2:3], d.broadcastable(scores[:3]), scores[1:3], scores[:3]))
    shape = (*leading, total)
    if kind == "lengths":
        return Tensor(shape, d.dtype if infinite and total % 2 else "bool", ("leading",))
    return d.mask(shape, 0.75) if kind == "boolean" else d.tensor(shape, "normal", "uniform")


@attributes(attention.LinearAttention)
def linear_attention_attributes(d: Draw) -> attention.LinearAttention:
    """Each rule; one head of keys for each of queries, and for several."""
    kv = d.integer(1, 2)
    return attention.LinearAttention(
        kv_num_heads=kv,
        q_num_heads=kv * d.integer(1, 3),
        scale=d.choose((0.0, 0.25, 1.0)),
        update_rule=d.choose(("linear", "gated", "delta", "gated_delta")),
    )


@inputs(attention.LinearAttention)
def linear_attention_inputs(d: Draw, op: attention.LinearAttention) -> tuple[Tensor | None, ...]:
    """A few steps; a past or none; rates of a head, of each element, or of all heads."""
    kv, heads = op.kv_num_heads or 1, op.q_num_heads or 1
    n, steps = d.samples(most=3), d.side(most=4, few=True)
    width, value_width = d.sides(2, most=5)
    gated, delta = "gated" in op.update_rule, "delta" in op.update_rule
    keys: tuple[Regime, ...] = (("scaled", -2), "onehot") if delta else SCORES
    past = d.maybe(d.tensor((n, kv, width, value_width), *SCORES))
    rates = (n, steps, kv * d.choose((1, width)))
    given = (
        d.tensor((n, steps, heads * width), *SCORES),
        d.tensor((n, steps, kv * width), *keys),
        d.tensor((n, steps, kv * value_width), *SCORES),
        past,
        d.tensor(rates, ("uniform", -2, 0)) if gated else None,
        d.tensor((n, steps, d.choose((kv, 1))), ("uniform", 0, 1)) if delta else None,
    )
    return given if gated or delta or past or d.flag() else given[:3]


choices(
    attention.RotaryEmbedding,
    interleaved=(0, 1),
    num_heads=lambda d: d.maybe(d.integer(1, 3)),
    rotary_embedding_dim=(0, 2, 6),
)


@inputs(attention.RotaryEmbedding)
def rotary_inputs(d: Draw, op: attention.RotaryEmbedding) -> tuple[Tensor, ...]:
    """All of a head or its beginning; a row of the caches for each element, or by positions."""
    n = d.samples(most=3, empty=True)
    heads = op.num_heads or d.integer(1, 3)
    length, half, positions = d.sides(3)
    r = op.rotary_embedding_dim
    width = r if r and d.flag() else r + 2 * half
    x = (n, heads, length, width) if op.num_heads is None else (n, length, heads * width)
    ids = (d.index((n, length), positions),) if d.flag() else ()
    rows = (positions,) if ids else (n, length)
    cache = (*rows, (r or width) // 2)
    return (*d.factors(x, cache, cache), *ids)


@inputs(linear.Det)
def det_inputs(d: Draw, op: linear.Det) -> tuple[Tensor]:
    """Small matrices, alone and in batches; one in `RARE` has no inverse, at the border more."""
    m = d.side(most=5, few=True)
    shape = (*d.sides(d.rank(0, 2)), m, m)
    if d.degenerate or d.integer(1, RARE) == RARE:
        return (d.tensor(shape, "normal", "singular"),)
    return (d.tensor(shape, "normal", "uniform", "heavy"),)
