"""jax, eager and under `jax.jit`, on the CPU and on accelerators.

Needs NumPy, jax and ml_dtypes. 64-bit types are on; the precision of matrix products stays jax's
default (full on a CPU, TF32 or bfloat16 passes for float32 on an accelerator) and stands in
`describe_device`. Inputs that decide shapes (axes, sizes, pads) have to be known when jax traces,
so rows read them with `_whole`; the compiled mode compiles once for each value of theirs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from itertools import accumulate
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend, Table, Unsupported, bits

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two workers share one GPU
logging.getLogger("jax._src.xla_bridge").setLevel(logging.ERROR)  # "no GPU, falling back"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax, nn  # noqa: E402

jax.config.update("jax_enable_x64", True)

Array = Any
ROWS = Table()

ROWS.elementwise(
    {"Relu": nn.relu, "Log": jnp.log, "Abs": jnp.abs, "Neg": jnp.negative}, arithmetic="F"
)
# Their gradients are products of several primitives, each of which is stored: class P.
ROWS.elementwise(
    {
        "Sigmoid": nn.sigmoid,
        "Tanh": jnp.tanh,
        "Exp": jnp.exp,
        "Sqrt": jnp.sqrt,
        "Reciprocal": jnp.reciprocal,
    }
)
# Where XLA adds in storage (scatter, windows, steps of a scan), or sums what was broadcast over
# one axis after the other with a rounding between, the gradient is of class S.
ROWS.elementwise(
    {
        "Add": jnp.add,
        "Sub": jnp.subtract,
        "Mul": jnp.multiply,
        "Div": jnp.divide,
        "Pow": jnp.power,
        "Where": jnp.where,
    },
    arithmetic="S",
)
ROWS.elementwise({"Erf": lax.erf, "Softplus": nn.softplus, "MatMul": jnp.matmul})


@ROWS.native("Max", "Min", arithmetic="S")
def extremum(op: Any, *xs: Array) -> Array:
    return reduce(jnp.maximum if op.name == "Max" else jnp.minimum, xs)


@ROWS.native("LeakyRelu", arithmetic="F")
def leaky_relu(op: Any, x: Array) -> Array:
    return nn.leaky_relu(x, op.alpha)


@ROWS.native("Gelu")
def gelu(op: Any, x: Array) -> Array:
    return nn.gelu(x, approximate=op.approximate == "tanh")


@ROWS.composed("Gemm", arithmetic="S")
def gemm(op: Any, a: Array, b: Array, c: Array | None = None) -> Array:
    y = op.alpha * jnp.matmul(a.T if op.transA else a, b.T if op.transB else b)
    return y if c is None else y + op.beta * c


# of three operands, or where axes of one are summed first: an intermediate result is stored
@ROWS.native("Einsum", arithmetic="S")
def einsum(op: Any, *xs: Array) -> Array:
    return jnp.einsum(op.equation, *xs)


# ---- convolution and pooling


def _window(op: Any, sizes: Sequence[int], kernel: Sequence[int]) -> tuple[Any, Any, Any, Any]:
    """Strides, dilations, pads, and the further pads at the end that `ceil_mode` asks for."""
    n = len(sizes)
    strides = op.strides or (1,) * n
    dilations = op.dilations or (1,) * n
    given = (op.auto_pad == "NOTSET" and op.pads) or (0,) * (2 * n)
    pads, more = [], []
    for i in range(n):
        reach, s = (kernel[i] - 1) * dilations[i] + 1, strides[i]
        low, high, further = given[i], given[n + i], 0
        if op.auto_pad.startswith("SAME"):
            total = max((-(-sizes[i] // s) - 1) * s + reach - sizes[i], 0)
            low = total // 2 if op.auto_pad == "SAME_UPPER" else total - total // 2
            high = total - low
        elif getattr(op, "ceil_mode", 0):
            further = -(sizes[i] + low + high - reach) % s
            last = sizes[i] + low + high + further - reach
            if last >= sizes[i] + low:  # a window may not start in the padding at the end
                further -= s
        pads.append((low, high))
        more.append(further)
    return strides, dilations, pads, more


@ROWS.native("Conv", arithmetic="S")
def conv(op: Any, x: Array, w: Array, b: Array | None = None) -> Array:
    strides, dilations, pads, _ = _window(op, x.shape[2:], w.shape[2:])
    y = lax.conv_general_dilated(
        x, w, strides, pads, rhs_dilation=dilations, feature_group_count=op.group
    )
    return y if b is None else y + _channels(b, y)


@ROWS.composed("ConvTranspose", arithmetic="S")
def conv_transpose(op: Any, x: Array, w: Array, b: Array | None = None) -> Array:
    n, g = x.ndim - 2, op.group
    strides, dilations = op.strides or (1,) * n, op.dilations or (1,) * n
    extra, given = (
        op.output_padding or (0,) * n,
        (op.auto_pad == "NOTSET" and op.pads) or (0,) * (2 * n),
    )
    pads = []
    for i in range(n):
        reach = (w.shape[2 + i] - 1) * dilations[i]
        full = strides[i] * (x.shape[2 + i] - 1) + extra[i] + reach + 1
        low, high = given[i], given[n + i]
        if op.output_shape or op.auto_pad.startswith("SAME"):
            size = op.output_shape[i] if op.output_shape else x.shape[2 + i] * strides[i]
            total = max(full - size, 0)
            low = total // 2 if op.auto_pad == "SAME_UPPER" else total - total // 2
            high = full - size - low
        pads.append((reach - low, reach - high + extra[i]))
    w = w.reshape(g, w.shape[0] // g, *w.shape[1:]).swapaxes(1, 2)
    w = jnp.flip(w.reshape(-1, *w.shape[2:]), range(2, n + 2))
    y = lax.conv_general_dilated(x, w, (1,) * n, pads, strides, dilations, feature_group_count=g)
    return y if b is None else y + _channels(b, y)


def _reduce_window(f: Any, x: Array, start: float, kernel: Any, s: Any, d: Any, p: Any) -> Array:
    one = (1, 1)
    return lax.reduce_window(
        x,
        np.array(start, x.dtype),  # concrete, or jax does not see that it can differentiate
        f,
        one + tuple(kernel),
        one + tuple(s),
        ((0, 0), (0, 0), *p),
        window_dilation=one + tuple(d),
    )


@ROWS.native("MaxPool", outputs=1, arithmetic="S")
def max_pool(op: Any, x: Array) -> Array:
    strides, dilations, pads, more = _window(op, x.shape[2:], op.kernel_shape)
    pads = [(low, high + m) for (low, high), m in zip(pads, more, strict=True)]
    return _reduce_window(lax.max, x, -np.inf, op.kernel_shape, strides, dilations, pads)


@ROWS.composed("AveragePool", arithmetic="S")
def average_pool(op: Any, x: Array) -> Array:
    strides, dilations, pads, more = _window(op, x.shape[2:], op.kernel_shape)
    ceil = [(0, m) for m in more]
    widths = [(0, 0), (0, 0), *pads]
    one = jnp.pad(jnp.ones_like(x), widths, constant_values=op.count_include_pad)
    window = (0.0, op.kernel_shape, strides, dilations, ceil)
    return _reduce_window(lax.add, jnp.pad(x, widths), *window) / _reduce_window(
        lax.add, one, *window
    )


@ROWS.native("GlobalAveragePool", arithmetic="F")
def global_average_pool(op: Any, x: Array) -> Array:
    return jnp.mean(x, tuple(range(2, x.ndim)), keepdims=True)


# ---- normalisation


def _channels(v: Array, x: Array) -> Array:
    """One value a channel, (c,), as it broadcasts to (n, c, ...)."""
    return v.reshape(-1, *(1,) * (x.ndim - 2))


def _wide(op: Any, x: Array) -> Array:
    """The input in the type that `stash_type` asks for, but never narrower than it is."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32)) if op.stash_type == 1 else x


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """Not `nn.standardize`: by design its variance is E[x^2] - E[x]^2, which cancels."""
    mean, var = (f(x, axes, keepdims=True) for f in (jnp.mean, jnp.var))
    return (x - mean) * lax.rsqrt(var + epsilon)


@ROWS.composed("BatchNormalization", arithmetic="S")
def batch_normalization(op: Any, x: Array, scale: Array, b: Array, mean: Array, var: Array) -> Any:
    if not op.training_mode:
        root = lax.rsqrt(_channels(var, x) + op.epsilon)
        return (x - _channels(mean, x)) * root * _channels(scale, x) + _channels(b, x)
    axes = (0, *range(2, x.ndim))
    now, spread = jnp.mean(x, axes), jnp.var(x, axes)
    # in float32 at least, as jax's libraries do: the root's gradient overflows float16
    v = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    xhat = _standardized(v, axes, op.epsilon).astype(x.dtype)
    y = xhat * _channels(scale, x) + _channels(b, x)
    m = op.momentum
    return y, mean * m + now * (1 - m), var * m + spread * (1 - m)


@ROWS.composed("LayerNormalization", arithmetic="S")
def layer_normalization(op: Any, x: Array, scale: Array, b: Array | None = None) -> Any:
    v, axes = _wide(op, x), tuple(range(op.axis % x.ndim, x.ndim))
    mean = jnp.mean(v, axes, keepdims=True)
    root = lax.rsqrt(jnp.var(v, axes, keepdims=True) + op.epsilon)
    y = ((v - mean) * root).astype(x.dtype) * scale
    return (y if b is None else y + b), mean, root


@ROWS.composed("GroupNormalization", arithmetic="S")
def group_normalization(op: Any, x: Array, scale: Array, b: Array) -> Array:
    v = _wide(op, x).reshape(x.shape[0], op.num_groups, -1)
    y = _standardized(v, (-1,), op.epsilon).astype(x.dtype).reshape(x.shape)
    return y * _channels(scale, x) + _channels(b, x)


@ROWS.composed("RMSNormalization", arithmetic="S")
def rms_normalization(op: Any, x: Array, scale: Array) -> Array:
    v, axes = _wide(op, x), tuple(range(op.axis % x.ndim, x.ndim))
    root = lax.rsqrt(jnp.mean(v * v, axes, keepdims=True) + op.epsilon)
    return (v * root).astype(x.dtype) * scale


# ---- softmax and losses


@ROWS.native("Softmax")
def softmax(op: Any, x: Array) -> Array:
    return nn.softmax(x, op.axis)


@ROWS.native("LogSoftmax")
def log_softmax(op: Any, x: Array) -> Array:
    return nn.log_softmax(x, op.axis)


@ROWS.composed("NegativeLogLikelihoodLoss")
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


@ROWS.composed("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(op: Any, scores: Array, *target: Array) -> Any:
    log_prob = nn.log_softmax(scores, 1)
    return nll(op, log_prob, *target), log_prob


# ---- reductions and what moves data


def _whole(x: Array) -> tuple[int, ...]:
    """The whole numbers of a vector that decides a shape. A tracer raises, see `Compiled`."""
    return tuple(int(i) for i in np.asarray(x).reshape(-1))


def _reduction(function: Callable[..., Array], op: Any, x: Array, axes: Any = None) -> Array:
    which = () if axes is None else _whole(axes)
    if not which and op.noop_with_empty_axes:
        return x
    return function(x, axis=which or None, keepdims=bool(op.keepdims))


def _largest(x: Array, **which: Any) -> Array:
    return jnp.max(x, **which) if x.size else jnp.max(x, **which, initial=-jnp.inf)


for _name, _function, _class in (
    ("ReduceSum", jnp.sum, "F"),
    ("ReduceMean", jnp.mean, "F"),
    ("ReduceMax", _largest, "F"),
    ("ReduceLogSumExp", nn.logsumexp, "P"),
):
    ROWS.native(_name, arithmetic=_class)(partial(_reduction, _function))


@ROWS.native("Reshape", arithmetic="F")
def reshape(op: Any, x: Array, shape: Array) -> Array:
    sizes = _whole(shape)
    if not op.allowzero:
        sizes = tuple(x.shape[i] if s == 0 else s for i, s in enumerate(sizes))
    return jnp.reshape(x, sizes)


@ROWS.native("Transpose", arithmetic="F")
def transpose(op: Any, x: Array) -> Array:
    return jnp.transpose(x, op.perm)


@ROWS.native("Concat", arithmetic="F")
def concat(op: Any, *xs: Array) -> Array:
    return jnp.concatenate(xs, op.axis)


@ROWS.native("Split", arithmetic="F")
def split(op: Any, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    n = x.shape[op.axis]
    if sizes is None:
        ends = [i * -(-n // op.num_outputs) for i in range(1, op.num_outputs)]
    else:
        ends = list(accumulate(_whole(sizes)))[:-1]
    return tuple(jnp.split(x, ends, op.axis))


@ROWS.native("Slice", arithmetic="F")
def slice_(
    op: Any, x: Array, starts: Array, ends: Array, axes: Any = None, steps: Any = None
) -> Array:
    first, last = _whole(starts), _whole(ends)
    index = [slice(None)] * x.ndim
    for i, axis in enumerate(range(len(first)) if axes is None else _whole(axes)):
        n, step = x.shape[axis], 1 if steps is None else _whole(steps)[i]
        low, high = (0, n) if step > 0 else (-1, n - 1)
        a, b = (min(max(v + n if v < 0 else v, low), high) for v in (first[i], last[i]))
        index[axis] = slice(max(a, 0), None if b < 0 else b, step)
        if a == low == -1:
            index[axis] = slice(0, 0)
    return x[tuple(index)]


@ROWS.native("Gather", arithmetic="S")
def gather(op: Any, x: Array, indices: Array) -> Array:
    return jnp.take(x, indices, op.axis)


@ROWS.native("Pad", arithmetic="S")
def pad(op: Any, x: Array, pads: Array, value: Any = None, axes: Any = None) -> Array:
    given, which = _whole(pads), range(x.ndim) if axes is None else _whole(axes)
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(which):
        widths[axis] = (given[i], given[len(which) + i])
    if any(w < 0 for pair in widths for w in pair):
        if op.mode != "constant":
            raise Unsupported(f"jax.numpy.pad has no negative pads in mode {op.mode!r}")
        zero = jnp.zeros((), x.dtype) if value is None else value.reshape(())
        return lax.pad(x, zero, [(low, high, 0) for low, high in widths])
    if op.mode != "constant":
        return jnp.pad(x, widths, op.mode)
    return jnp.pad(x, widths, constant_values=0 if value is None else value.reshape(()))


@ROWS.native("Expand", arithmetic="S")
def expand(op: Any, x: Array, shape: Array) -> Array:
    return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, _whole(shape)))


# ---- dropout and attention


@ROWS.composed("Dropout")
def dropout(op: Any, x: Array, ratio: Any = None, mask: Any = None) -> Array:
    if mask is None:
        return x
    return (x * mask * (1 / (1 - (0.5 if ratio is None else ratio)))).astype(x.dtype)


@ROWS.native("Attention", outputs=3)
def attention(
    op: Any, q: Array, k: Array, v: Array, mask: Any = None, past_k: Any = None,
    past_v: Any = None, lengths: Any = None,
) -> Any:  # fmt: skip
    """Composed (padded first, cut afterwards) if the heads of K and V differ in size."""
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
        given = mask.shape[3]
        mask = jnp.pad(mask, [(0, 0)] * 3 + [(0, s - given if given > 1 else 0)])
        if mask.dtype == bool:
            seen = mask if seen is None else seen & mask
        else:
            bias = mask
            if 1 < given < s:
                there = (jnp.arange(s) < given).reshape(1, 1, 1, s)
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


# ---- recurrences

ACTIVATIONS = {"Relu": nn.relu, "Tanh": jnp.tanh, "Sigmoid": nn.sigmoid}


def _recur(op: Any, cell: Callable[..., Any], count: int, *inputs: Any) -> tuple[Array, ...]:
    """`cell` over time in each direction: all hidden states, then the last of `count` states."""
    every: list[Any] = [*inputs, *[None] * (8 - len(inputs))]
    x, w, r, b, lengths, *starts = every
    starts, peepholes = starts[:count], starts[count]
    if op.layout:
        x, starts = (x.swapaxes(0, 1), [s if s is None else s.swapaxes(0, 1) for s in starts])
    zero, ways = jnp.zeros((x.shape[1], r.shape[2]), x.dtype), []
    for k in range(w.shape[0]):
        bias = jnp.split(jnp.zeros(2 * w.shape[1], x.dtype) if b is None else b[k], 2)
        peep = (0, 0, 0) if peepholes is None else jnp.split(peepholes[k], 3)
        step = partial(cell, op, k, r[k], bias, peep)
        turn = partial(_turn, step, lengths)
        times = (jnp.arange(x.shape[0]), x @ w[k].T)
        start = tuple(zero if s is None else s[k] for s in starts)
        ways.append(lax.scan(turn, start, times, reverse=k == 1 or op.direction == "reverse"))
    y = jnp.stack([ys for _, ys in ways], 1)
    last = [jnp.stack(states) for states in zip(*(end for end, _ in ways), strict=True)]
    if op.layout:
        y, last = y.transpose(2, 0, 1, 3), [s.swapaxes(0, 1) for s in last]
    return y, *last


def _turn(step: Callable[..., Any], lengths: Any, states: Any, now: Any) -> Any:
    """One step of `lax.scan`; a sequence beyond its end keeps its states and puts out zeros."""
    t, xw = now
    new = step(xw, *states)
    if lengths is None:
        return new, new[0]
    alive = (t < lengths)[:, None]
    kept = tuple(jnp.where(alive, n, old) for n, old in zip(new, states, strict=True))
    return kept, jnp.where(alive, new[0], 0)


def _rnn(op: Any, k: int, r: Array, bias: Any, p: Any, xw: Array, h: Array) -> Any:
    name = (op.activations or ("Tanh",) * 2)[k]
    if name not in ACTIVATIONS:
        raise Unsupported(f"activation {name} of RNN is not among {', '.join(ACTIVATIONS)}")
    return (ACTIVATIONS[name](xw + h @ r.T + bias[0] + bias[1]),)


def _lstm(op: Any, k: int, r: Array, bias: Any, p: Any, xw: Array, h: Array, c: Array) -> Any:
    i, o, f, g = jnp.split(xw + h @ r.T + bias[0] + bias[1], 4, -1)
    c_next = nn.sigmoid(f + p[2] * c) * c + nn.sigmoid(i + p[0] * c) * jnp.tanh(g)
    return nn.sigmoid(o + p[1] * c_next) * jnp.tanh(c_next), c_next


def _gru(op: Any, k: int, r: Array, bias: Any, p: Any, xw: Array, h: Array) -> Any:
    xz, xr, xh = jnp.split(xw + bias[0], 3, -1)
    (rz, rr, rh), (bz, br, bh) = jnp.split(r, 3), jnp.split(bias[1], 3)
    z, reset = nn.sigmoid(xz + h @ rz.T + bz), nn.sigmoid(xr + h @ rr.T + br)
    past = reset * (h @ rh.T + bh) if op.linear_before_reset else (reset * h) @ rh.T + bh
    return ((1 - z) * jnp.tanh(xh + past) + z * h,)


for _name, _cell, _count in (("RNN", _rnn, 1), ("LSTM", _lstm, 2), ("GRU", _gru, 1)):
    ROWS.composed(_name, arithmetic="S")(
        lambda op, *inputs, _cell=_cell, _count=_count: _recur(op, _cell, _count, *inputs)
    )


# ---- the backend


def _tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _pull(
    function: Callable[..., Any], wanted: tuple[int, ...], inputs: Sequence[Any], grads: Any
) -> tuple[tuple[Any, ...], list[Any]]:
    def of_wanted(*chosen: Any) -> tuple[Any, ...]:
        every = list(inputs)
        for i, x in zip(wanted, chosen, strict=True):
            every[i] = x
        return _tuple(function(*every))

    try:
        outputs, pull = jax.vjp(of_wanted, *(inputs[i] for i in wanted))
        given = list(grads) + [None] * (len(outputs) - len(grads))
        return outputs, list(pull(tuple(map(_cotangent, outputs, given))))
    except NotImplementedError as error:
        raise Unsupported(f"jax: {error}") from error


def _cotangent(y: Array, dy: Any) -> Any:
    if not jnp.issubdtype(y.dtype, jnp.inexact):
        return np.zeros(y.shape, jax.dtypes.float0)
    return jnp.zeros_like(y) if dy is None else jnp.asarray(dy, y.dtype)


FORGET = 5000
"""Tensors that are put until compiled shapes are forgotten. They pile up, at about 1 MB a case,
and would end a long run for want of memory, which would look like a fault of jax."""


class Jax(Backend):
    """jax, operation by operation."""

    framework = "jax"
    rows = ROWS
    compiles_shapes = True
    ulps: ClassVar[Mapping[str, float]] = {
        "erf": 7,
        "erfc": 65,
        "exp2": 66,
        "expm1": 6,
        "log1p": 129,
        "sinh": 25,
        "cosh": 25,
        "tanh": 7,
    }
    """Largest errors seen on the CPU with jax 0.10.2: float32 on 2 10^6 arguments over its whole
    range, float64 on some 5000 (log1p near -0.414 and tanh near 20 are its). Not granted: sinh
    and cosh grow to 495 ULPs towards float64's overflow, erfc to 487 towards its underflow."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._puts = 0
        platform, _, number = device.partition(":")
        try:
            self._device = jax.devices(platform)[int(number or 0)]
        except (RuntimeError, IndexError, ValueError) as error:
            known = ", ".join(self.devices())
            raise Unsupported(f"jax has no device {device!r} here, only {known}") from error
        jax.config.update("jax_default_device", self._device)

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        found = []
        for platform in ("cpu", "cuda", "rocm", "tpu"):
            try:
                count = len(jax.devices(platform))
            except RuntimeError:
                continue
            found += ["cpu"] if platform == "cpu" else [f"{platform}:{i}" for i in range(count)]
        return tuple(found)

    @property
    def version(self) -> str:
        return str(jax.__version__)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Any:
        if layout not in self.layouts:
            raise Unsupported(f"jax arrays have no strides: no layout {layout!r}")
        self._puts += 1
        if self._puts % FORGET == 0:
            jax.clear_caches()
        own = array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array.astype(dtype)
        return jax.device_put(np.array(own, order="C"), self._device)

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return bits(np.array(tensor))

    def wait(self, tensors: Sequence[Any]) -> None:
        jax.block_until_ready(list(tensors))

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        return _pull(function, tuple(wanted), inputs, grads)

    def address(self, tensor: Any) -> tuple[int, int] | None:
        first = tensor.unsafe_buffer_pointer()
        return first, first + tensor.nbytes

    def peak_memory(self) -> int | None:
        counts = self._device.memory_stats()
        return None if counts is None else counts.get("peak_bytes_in_use")

    def describe_device(self) -> str:
        precision = jax.config.jax_default_matmul_precision or "default"
        return f"{self._device.device_kind}, matrix products in {precision} precision"


class Compiled:
    """A function under `jax.jit`, counting what is compiled.

    Whole numbers are traced like all inputs. A function that cannot be traced so, since they
    decide shapes, is compiled once for each value of theirs.
    """

    def __init__(self, function: Callable[..., Any], count: Callable[[], None]) -> None:
        self.function, self._count = function, count
        self._dynamic = jax.jit(self._traced)
        self._jitted: dict[Any, Callable[..., Any]] = {}
        self._last: tuple[Any, ...] = ()
        self._latest: Callable[..., Any] | None = None
        self._needs_values = False

    def __call__(self, *inputs: Any) -> Any:
        if not self._needs_values:
            try:
                return self._dynamic(*inputs)
            except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
                self._needs_values = True
        whole = tuple(x if _is_whole(x) else None for x in inputs)
        if self._latest is None or any(a is not b for a, b in zip(whole, self._last, strict=True)):
            values = (None if x is None else (x.shape, np.asarray(x).tobytes()) for x in whole)
            key = tuple(values)
            if key not in self._jitted:
                self._jitted[key] = jax.jit(partial(self._with_values, whole))
            self._last, self._latest = whole, self._jitted[key]
        return self._latest(
            *(None if w is not None else x for w, x in zip(whole, inputs, strict=True))
        )

    def _with_values(self, whole: tuple[Any, ...], *rest: Any) -> Any:
        return self._traced(*(r if w is None else w for w, r in zip(whole, rest, strict=True)))

    def _traced(self, *inputs: Any) -> Any:
        result = self.function(*inputs)
        self._count()
        return result


def _is_whole(x: Any) -> bool:
    return x is not None and bool(jnp.issubdtype(x.dtype, jnp.integer))


class JaxCompiled(Jax):
    """jax with each operator, and its gradient, under `jax.jit`."""

    mode = "compiled"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._compiled = 0
        self._pulls = lru_cache(maxsize=64)(self._compile_pull)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Compiled(function, self._count)

    def compilations(self) -> int | None:
        return self._compiled

    def reset(self) -> None:
        self._pulls.cache_clear()
        jax.clear_caches()

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        pull = self._pulls(function, tuple(wanted), len(inputs))
        outputs, gradients = pull(*inputs, *grads)
        return outputs, list(gradients)

    def _compile_pull(
        self, function: Callable[..., Any], wanted: tuple[int, ...], n: int
    ) -> Callable[..., Any]:
        if isinstance(function, Compiled):
            function = function.function

        def pull(*every: Any) -> Any:
            before = self._compiled
            result = _pull(function, wanted, every[:n], every[n:])
            self._compiled = before  # what is traced inside is no compilation of its own
            return result

        return self.compile(pull)

    def _count(self) -> None:
        self._compiled += 1
