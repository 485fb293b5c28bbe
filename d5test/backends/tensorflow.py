"""TensorFlow, eager, as graphs (tf.function) and compiled by XLA (jit_compile=True).

ONNX keeps channels second, TensorFlow's CPU kernels keep them last: convolutions and pooling
transpose, pad and split groups around the native function. That moves values and rounds none, so
these rows are native. tf.nn.convolution's own way to dilate is to move values, too.

In graphs, integers that become shapes or axes must be known when the graph is made: where an
operator asks for such a value, all its integer inputs become constants, and new ones a new graph.

Eigen sums float16 in float16 (a column of 16384 ones has the sum 2048), hence the class S of every
row that sums, if only the gradient of what was broadcast.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend, Row, Table, Unsupported, bits

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "OMP_NUM_THREADS" in os.environ:
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", os.environ["OMP_NUM_THREADS"])

import tensorflow as tf

rows = Table()
rows.elementwise(
    {
        "Sigmoid": tf.sigmoid,
        "Tanh": tf.tanh,
        "Exp": tf.exp,
        "Log": tf.math.log,
        "Sqrt": tf.sqrt,
        "Erf": tf.math.erf,
        "Softplus": tf.math.softplus,
        "Reciprocal": tf.math.reciprocal,
    }
)
rows.elementwise({"Relu": tf.nn.relu, "Abs": tf.abs, "Neg": tf.negative}, arithmetic="F")
rows.elementwise(
    {
        "Add": tf.add,
        "Sub": tf.subtract,
        "Mul": tf.multiply,
        "Where": tf.where,
    },
    arithmetic="S",
)


class _ValueNeededError(Exception):
    """The graph cannot be made before this integer is known."""


def _value(tensor: Any) -> list[Any]:
    """The numbers in an integer tensor, flat, also while a graph is made."""
    value = tf.get_static_value(tensor)
    if value is None:
        raise _ValueNeededError
    return list(np.ravel(value).tolist())


@rows.native("LeakyRelu")
def leaky_relu(op: Any, x: Any) -> Any:
    return tf.nn.leaky_relu(x, op.alpha)


@rows.native("Gelu")
def gelu(op: Any, x: Any) -> Any:
    return tf.nn.gelu(x, approximate=op.approximate == "tanh")


@rows.native("Div", arithmetic="S")
def div(op: Any, a: Any, b: Any) -> Any:
    return tf.truncatediv(a, b) if a.dtype.is_integer else tf.divide(a, b)


@rows.native("Pow", arithmetic="S")
def power(op: Any, x: Any, y: Any) -> Any:
    if x.dtype != y.dtype:
        if x.dtype.is_integer:
            raise Unsupported("tf.pow wants base and exponent of one dtype")
        y = tf.cast(y, x.dtype)
    return tf.pow(x, y)


@rows.native("Max", arithmetic="S")
def maximum(op: Any, *inputs: Any) -> Any:
    return functools.reduce(tf.maximum, inputs)


@rows.native("Min", arithmetic="S")
def minimum(op: Any, *inputs: Any) -> Any:
    return functools.reduce(tf.minimum, inputs)


@rows.native("MatMul", arithmetic="S")
def matmul(op: Any, a: Any, b: Any) -> Any:
    if a.ndim > 1 and b.ndim > 1:
        return tf.matmul(a, b)
    y = tf.matmul(a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b)
    y = tf.squeeze(y, -1) if b.ndim == 1 else y
    return tf.squeeze(y, -2 + (b.ndim == 1)) if a.ndim == 1 else y


@rows.composed("Gemm", arithmetic="S")
def gemm(op: Any, a: Any, b: Any, c: Any = None) -> Any:
    y = tf.matmul(a, b, transpose_a=bool(op.transA), transpose_b=bool(op.transB))
    y = y if op.alpha == 1 else op.alpha * y
    return y if c is None else y + (c if op.beta == 1 else op.beta * c)


@rows.native("Einsum", arithmetic="S")
def einsum(op: Any, *inputs: Any) -> Any:
    return tf.einsum(op.equation.replace(" ", ""), *inputs)


def _last(x: Any) -> Any:
    """Channels from the second axis to the last."""
    return tf.transpose(x, (0, *range(2, x.ndim), 1))


def _second(x: Any) -> Any:
    """Channels from the last axis to the second."""
    return tf.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def _steps(op: Any, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides and dilations of n axes."""
    strides, dilations = op.strides or (1,) * n, op.dilations or (1,) * n
    return tuple(strides), tuple(dilations)


def _pads(op: Any, sizes: Sequence[int], kernel: Sequence[int]) -> list[tuple[int, int]]:
    """Explicit padding of each spatial axis by ONNX's rules, without ceil_mode."""
    n = len(kernel)
    if op.auto_pad in ("NOTSET", ""):
        pads = tuple(op.pads or (0,) * 2 * n)
        return list(zip(pads[:n], pads[n:], strict=True))
    if op.auto_pad == "VALID":
        return [(0, 0)] * n
    result = []
    for i, k, s, d in zip(sizes, kernel, *_steps(op, n), strict=True):
        total = max((math.ceil(i / s) - 1) * s + (k - 1) * d + 1 - i, 0)
        begin = total // 2 if op.auto_pad == "SAME_UPPER" else total - total // 2
        result.append((begin, total - begin))
    return result


def _padded(x: Any, pads: Sequence[tuple[int, int]], fill: float = 0) -> Any:
    """`x` (n, ..., c) with its spatial axes padded."""
    if not any(map(any, pads)):
        return x
    return tf.pad(x, [(0, 0), *pads, (0, 0)], constant_values=tf.constant(fill, x.dtype))


_ORDER = (None, "NWC", "NHWC", "NDHWC")
"""Names of TensorFlow's own layouts. Without the name, eager gradients over 3 axes raise."""


def _convolve(x: Any, w: Any, strides: tuple[int, ...], dilations: tuple[int, ...]) -> Any:
    if max(strides) == 1 or max(dilations) == 1:
        order = _ORDER[len(strides)]
        return tf.nn.convolution(x, w, strides, "VALID", order, dilations)
    if len(strides) == 2:
        return tf.nn.conv2d(x, w, strides, "VALID", dilations=dilations)
    raise Unsupported("tf.nn.convolution has no strides together with dilations")


@rows.native("Conv", arithmetic="S")
def conv(op: Any, x: Any, w: Any, b: Any = None) -> Any:
    n = w.ndim - 2
    pads = _pads(op, x.shape[2:], w.shape[2:])
    x, w = _padded(_last(x), pads), tf.transpose(w, (*range(2, n + 2), 1, 0))
    steps = _steps(op, n)
    if op.group == 1 or (n < 3 and x.dtype in (tf.float32, tf.bfloat16)):
        y = _convolve(x, w, *steps)
    else:  # only oneDNN's kernels have groups and their gradients
        parts = zip(tf.split(x, op.group, -1), tf.split(w, op.group, -1), strict=True)
        y = tf.concat([_convolve(xi, wi, *steps) for xi, wi in parts], -1)
    return _second(y if b is None else y + b)


@rows.native("ConvTranspose", arithmetic="S")
def conv_transpose(op: Any, x: Any, w: Any, b: Any = None) -> Any:
    n = w.ndim - 2
    strides, dilations = _steps(op, n)
    extra = op.output_padding or (0,) * n
    kernel, sizes = w.shape[2:], x.shape[2:]
    full = [
        s * (i - 1) + (k - 1) * d + 1
        for i, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    wanted = op.output_shape
    if wanted is None and op.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [i * s for i, s in zip(sizes, strides, strict=True)]
    if wanted is None:
        pads = _pads(op, sizes, kernel)
        wanted = [f + e - sum(p) for f, e, p in zip(full, extra, pads, strict=True)]
        begins = [p[0] for p in pads]
    else:
        wanted = list(wanted)[-n:]
        total = [max(f + e - o, 0) for f, e, o in zip(full, extra, wanted, strict=True)]
        begins = [t // 2 if op.auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
    function = (tf.nn.conv1d_transpose, tf.nn.conv2d_transpose, tf.nn.conv3d_transpose)[n - 1]
    w = tf.transpose(w, (*range(2, n + 2), 1, 0))
    shape = (x.shape[0], *full, w.shape[-2])
    parts = zip(tf.split(_last(x), op.group, -1), tf.split(w, op.group, -1), strict=True)
    ys = [function(xi, wi, shape, strides, "VALID", dilations=dilations) for xi, wi in parts]
    y = ys[0] if len(ys) == 1 else tf.concat(ys, -1)
    ends = [a + o - f for a, o, f in zip(begins, wanted, full, strict=True)]
    y = _padded(y, [(0, max(end, 0)) for end in ends])
    y = tf.slice(y, (0, *begins, 0), (y.shape[0], *wanted, y.shape[-1]))
    return _second(y if b is None else y + b)


def _ceiled(op: Any, sizes: Sequence[int], pads: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The padding with what ceil_mode adds at the ends; no window may start there."""
    if not op.ceil_mode:
        return pads
    result = []
    steps = zip(sizes, pads, op.kernel_shape, *_steps(op, len(pads)), strict=True)
    for i, (begin, end), k, s, d in steps:
        span = (k - 1) * d + 1
        last = math.ceil((i + begin + end - span) / s)
        last -= last * s >= i + begin
        result.append((begin, max(end, last * s + span - i - begin)))
    return result


def _pool(op: Any, x: Any, kind: str, padding: str = "VALID") -> Any:
    strides, dilations = _steps(op, x.ndim - 2)
    if max(dilations) == 1:
        function = tf.nn.max_pool if kind == "MAX" else tf.nn.avg_pool
        return _second(function(x, op.kernel_shape, strides, padding, _ORDER[len(strides)]))
    if max(strides) > 1:
        raise Unsupported("tf.nn.pool has no strides together with dilations")
    return _second(tf.nn.pool(x, op.kernel_shape, kind, strides, padding, dilations=dilations))


@rows.native("MaxPool", outputs=1, arithmetic="S")
def max_pool(op: Any, x: Any) -> Any:
    pads = _ceiled(op, x.shape[2:], _pads(op, x.shape[2:], op.kernel_shape))
    return _pool(op, _padded(_last(x), pads, -math.inf), "MAX")


@rows.native("AveragePool", arithmetic="S")
def average_pool(op: Any, x: Any) -> Any:
    sizes = x.shape[2:]
    pads = _pads(op, sizes, op.kernel_shape)
    padded = _ceiled(op, sizes, pads)
    if not any(map(any, padded)) or (op.count_include_pad and padded == pads):
        return _pool(op, _padded(_last(x), padded), "AVG")
    strides, dilations = _steps(op, len(sizes))
    same = [
        max((math.ceil(i / s) - 1) * s + k - i, 0)
        for i, k, s in zip(sizes, op.kernel_shape, strides, strict=True)
    ]
    if (
        max(dilations) == 1
        and not op.count_include_pad
        and padded == [(t // 2, t - t // 2) for t in same]
    ):
        return _pool(op, _last(x), "AVG", "SAME")
    raise Unsupported("tf.nn.avg_pool leaves padding out of the mean only where it is SAME's")


@rows.native("GlobalAveragePool", arithmetic="S")
def global_average_pool(op: Any, x: Any) -> Any:
    return tf.reduce_mean(x, tuple(range(2, x.ndim)), keepdims=True)


def _channelwise(parameter: Any, x: Any) -> Any:
    """A parameter (c,) as it multiplies x (n, c, ...)."""
    return tf.reshape(parameter, (-1, *(1,) * (x.ndim - 2)))


@rows.native("BatchNormalization", arithmetic="S")
def batch_normalization(op: Any, x: Any, scale: Any, b: Any, mean: Any, var: Any) -> Any:
    dtype = x.dtype
    if not op.training_mode:
        parameters = (_channelwise(tf.cast(p, dtype), x) for p in (mean, var, b, scale))
        return tf.nn.batch_normalization(x, *parameters, variance_epsilon=op.epsilon)
    axes = (0, *range(2, x.ndim))
    wide = tf.cast(x, mean.dtype) if mean.dtype.size > dtype.size else x
    m, v = tf.nn.moments(wide, axes)
    if dtype == tf.float64:
        shift = (_channelwise(tf.cast(p, dtype), x) for p in (m, v, b, scale))
        y = tf.nn.batch_normalization(x, *shift, variance_epsilon=op.epsilon)
    else:  # not tf.compat.v1.nn.fused_batch_norm: it raises epsilon to 1.001e-5
        y = tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(_last(x), (x.shape[0], -1, 1, x.shape[1])),
            scale=tf.cast(scale, tf.float32),
            offset=tf.cast(b, tf.float32),
            mean=tf.zeros(0),
            variance=tf.zeros(0),
            epsilon=op.epsilon,
            is_training=True,
        )[0]
        y = _second(tf.reshape(y, (x.shape[0], *x.shape[2:], x.shape[1])))
    kept = op.momentum
    m, v = tf.cast(m, mean.dtype), tf.cast(v, var.dtype)
    return y, mean * kept + m * (1 - kept), var * kept + v * (1 - kept)


def _wide(x: Any) -> Any:
    """In float32 at least: ONNX's stash_type."""
    return tf.cast(x, tf.float32) if x.dtype.size < 4 else x


@rows.composed("LayerNormalization", arithmetic="S")
def layer_normalization(op: Any, x: Any, scale: Any, b: Any = None) -> Any:
    wide = _wide(x)
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    mean, var = tf.nn.moments(wide, axes, keepdims=True)
    inverse = tf.math.rsqrt(var + op.epsilon)
    y = tf.cast((wide - mean) * inverse, x.dtype) * scale
    return (y if b is None else y + b), mean, inverse


@rows.composed("GroupNormalization", arithmetic="S")
def group_normalization(op: Any, x: Any, scale: Any, bias: Any) -> Any:
    grouped = _wide(tf.reshape(x, (x.shape[0], op.num_groups, -1)))
    mean, var = tf.nn.moments(grouped, (2,), keepdims=True)
    y = tf.nn.batch_normalization(grouped, mean, var, None, None, op.epsilon)
    y = tf.cast(tf.reshape(y, x.shape), x.dtype)
    return y * _channelwise(scale, x) + _channelwise(bias, x)


@rows.composed("RMSNormalization", arithmetic="S")
def rms_normalization(op: Any, x: Any, scale: Any) -> Any:
    wide = _wide(x)
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    square = tf.reduce_mean(tf.square(wide), axes, keepdims=True)
    return tf.cast(wide * tf.math.rsqrt(square + op.epsilon), x.dtype) * scale


@rows.native("Softmax", arithmetic="S")
def softmax(op: Any, x: Any) -> Any:
    return tf.nn.softmax(x, op.axis)


@rows.native("LogSoftmax", arithmetic="S")
def log_softmax(op: Any, x: Any) -> Any:
    return tf.nn.log_softmax(x, op.axis)


def _reduced_loss(op: Any, loss: Any, labels: Any, weights: Any) -> Any:
    """The loss of each sample, weighted, without those to be ignored, and reduced."""
    w = tf.ones_like(loss) if weights is None else tf.gather(weights, labels[1])
    if op.ignore_index is not None:
        w = tf.where(labels[0] == op.ignore_index, tf.zeros_like(w), w)
    loss = (
        tf.where(w == 0, tf.zeros_like(loss), loss * w)
        if op.ignore_index is not None
        else loss * w
    )
    if op.reduction == "none":
        return loss
    total = tf.reduce_sum(loss)
    return total if op.reduction == "sum" else total / tf.reduce_sum(w)


def _labels(op: Any, labels: Any) -> tuple[Any, Any]:
    """As given, and with those to be ignored replaced by a class that exists."""
    if op.ignore_index is None:
        return labels, labels
    return labels, tf.where(labels == op.ignore_index, tf.zeros_like(labels), labels)


@rows.composed("SoftmaxCrossEntropyLoss", arithmetic="S")
def softmax_cross_entropy_loss(op: Any, scores: Any, labels: Any, weights: Any = None) -> Any:
    both = _labels(op, labels)
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(both[1], _last(scores))
    return _reduced_loss(op, loss, both, weights), tf.nn.log_softmax(scores, 1)


@rows.composed("NegativeLogLikelihoodLoss", arithmetic="S")
def negative_log_likelihood_loss(op: Any, x: Any, target: Any, weight: Any = None) -> Any:
    both = _labels(op, target)
    loss = -tf.gather(_last(x), both[1], batch_dims=x.ndim - 1)
    return _reduced_loss(op, loss, both, weight)


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(op: Any, data: Any, axes: Any = None) -> Any:
        given = [] if axes is None else _value(axes)
        if not given and op.noop_with_empty_axes:
            return tf.identity(data)
        return function(data, given or None, keepdims=bool(op.keepdims))

    return reduce


rows["ReduceSum"] = Row(_reduce(tf.reduce_sum), arithmetic="S")
rows["ReduceMean"] = Row(_reduce(tf.reduce_mean), arithmetic="S")
rows["ReduceMax"] = Row(_reduce(tf.reduce_max), arithmetic="F")
rows["ReduceLogSumExp"] = Row(_reduce(tf.reduce_logsumexp), arithmetic="S")


@rows.native("Reshape", arithmetic="F")
def reshape(op: Any, data: Any, shape: Any) -> Any:
    wanted = _value(shape)
    if not op.allowzero:
        wanted = [data.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    return tf.reshape(data, wanted)


@rows.native("Transpose", arithmetic="F")
def transpose(op: Any, data: Any) -> Any:
    return tf.transpose(data, op.perm)


@rows.native("Concat", arithmetic="F")
def concat(op: Any, *inputs: Any) -> Any:
    return tf.concat(inputs, op.axis)


@rows.native("Split", arithmetic="F")
def split(op: Any, x: Any, sizes: Any = None) -> Any:
    if sizes is not None:
        return tuple(tf.split(x, _value(sizes), op.axis))
    side, n = x.shape[op.axis], op.num_outputs
    chunk = -(-side // n)
    return tuple(tf.split(x, [min(chunk, max(side - i * chunk, 0)) for i in range(n)], op.axis))


@rows.native("Slice", arithmetic="F")
def slice_(op: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    starts, ends = _value(starts), _value(ends)
    steps = [1] * len(starts) if steps is None else _value(steps)
    begin, end, stride, open_end = [0] * x.ndim, list(x.shape), [1] * x.ndim, 0
    axes = range(len(starts)) if axes is None else _value(axes)
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        i = axis % x.ndim
        begin[i], end[i], stride[i] = slice(*bounds).indices(x.shape[i])
        open_end |= (end[i] < 0) << i  # -1 would count from the end
    if any(b < 0 for b in begin):  # a negative step over an empty axis
        return tf.zeros([len(range(*s)) for s in zip(begin, end, stride, strict=True)], x.dtype)
    return tf.strided_slice(x, begin, end, stride, end_mask=open_end)


@rows.native("Gather", arithmetic="S")
def gather(op: Any, data: Any, indices: Any) -> Any:
    indices = tf.where(indices < 0, indices + data.shape[op.axis], indices)
    return tf.gather(data, indices, axis=op.axis)


@rows.native("Pad", arithmetic="S")
def pad(op: Any, data: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    if op.mode not in ("constant", "reflect"):
        raise Unsupported(f"tf.pad has no mode {op.mode}")
    given = _value(pads)
    sides = [(0, 0)] * data.ndim
    chosen = range(data.ndim) if axes is None else _value(axes)
    for axis, begin, end in zip(
        chosen, given[: len(given) // 2], given[len(given) // 2 :], strict=True
    ):
        sides[axis % data.ndim] = (begin, end)
    if min(given, default=0) < 0:
        if op.mode == "reflect":
            raise Unsupported("tf.pad takes nothing away")
        data = data[
            tuple(
                slice(max(-b, 0), n + min(e, 0))
                for (b, e), n in zip(sides, data.shape, strict=True)
            )
        ]
        sides = [(max(b, 0), max(e, 0)) for b, e in sides]
    if op.mode == "reflect":
        return tf.pad(data, sides, "REFLECT")
    return tf.pad(data, sides, constant_values=0 if value is None else tf.reshape(value, ()))


@rows.native("Expand", arithmetic="S")
def expand(op: Any, x: Any, shape: Any) -> Any:
    return tf.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), tuple(_value(shape))))


@rows.composed("Dropout")
def dropout(op: Any, x: Any, ratio: Any = None, mask: Any = None) -> Any:
    """With the mask given: tf.nn.dropout draws its own."""
    if mask is None:
        return tf.identity(x)
    return (
        tf.cast(mask, x.dtype)
        * x
        * (1 / (1 - (0.5 if ratio is None else tf.cast(ratio, x.dtype))))
    )


@rows.composed("Attention", arithmetic="S")
def attention(
    op: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    valid: Any = None,
) -> Any:
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
            seen = seen & (biased > lowest)
    # a query that sees nothing gives zeros; its softmax stays finite for the gradient's sake
    none = ~tf.reduce_any(seen, -1, keepdims=True)
    shown = tf.where(seen, biased, tf.where(none, tf.zeros_like(lowest), lowest))
    wide = _PRECISIONS.get(op.softmax_precision, q.dtype)
    p = tf.cast(tf.nn.softmax(tf.cast(shown, wide)), q.dtype)
    p = tf.where(none, tf.zeros_like(p), p)
    y = tf.matmul(p, v)
    if merged:
        y = tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (y.shape[0], queries, -1))
    stages = scaled, capped, tf.where(seen, biased, lowest), p
    return y, *present, stages[op.qk_matmul_output_mode]


_PRECISIONS = {1: tf.float32, 10: tf.float16, 11: tf.float64, 16: tf.bfloat16}
"""ONNX's numbers of floating-point dtypes."""

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "Relu": tf.nn.relu,
    "Sigmoid": tf.sigmoid,
    "Softplus": tf.math.softplus,
    "Softsign": tf.nn.softsign,
    "Tanh": tf.tanh,
}


def _activations(op: Any, names: tuple[str, ...], directions: int) -> list[Callable[[Any], Any]]:
    """The activation functions of all directions; `names` are the defaults of one."""
    for attribute in ("activation_alpha", "activation_beta", "clip"):
        if getattr(op, attribute, None) is not None:
            raise Unsupported(f"this row composes no recurrence with {attribute}")
    chosen = (getattr(op, "activations", None) or names * directions)[: len(names) * directions]
    if not set(chosen) <= set(_ACTIVATIONS):
        raise Unsupported(f"TensorFlow has no function of one argument for one of {chosen}")
    return [_ACTIVATIONS[name] for name in chosen]


def _recurrence(
    op: Any,
    names: tuple[str, ...],
    cell: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    lens: Any,
    *states: Any,
) -> tuple[Any, ...]:
    """Y, then the last of each state. `cell(op, activations, xw, r, rb, *state)` is one step."""
    if op.layout:
        x = tf.transpose(x, (1, 0, 2))
        states = tuple(s if s is None else tf.transpose(s, (1, 0, 2)) for s in states)
    (time, n), (directions, _, hidden) = x.shape[:2], r.shape
    functions = _activations(op, names, directions)
    ys, lasts = [], []
    for d in range(directions):
        xw, rb = tf.matmul(x, w[d], transpose_b=True), None
        if b is not None:
            wb, rb = tf.split(b[d], 2)
            xw += wb
        state = tuple(tf.zeros((n, hidden), x.dtype) if s is None else s[d] for s in states)
        mine = functions[d * len(names) : (d + 1) * len(names)]
        y: list[Any] = [None] * time
        backwards = op.direction == "reverse" or d == 1
        for t in reversed(range(time)) if backwards else range(time):
            new = cell(op, mine, d, xw[t], r[d], rb, *state)
            y[t] = new[0]
            if lens is not None:
                live = (t < lens)[:, None]
                y[t] = tf.where(live, y[t], tf.zeros_like(y[t]))
                new = tuple(tf.where(live, a, b) for a, b in zip(new, state, strict=True))
            state = new
        ys.append(tf.stack(y) if y else tf.zeros((0, n, hidden), x.dtype))
        lasts.append(state)
    last = [tf.stack(s) for s in zip(*lasts, strict=True)]
    if op.layout:
        return tf.transpose(tf.stack(ys), (2, 1, 0, 3)), *(
            tf.transpose(s, (1, 0, 2)) for s in last
        )
    return tf.stack(ys, 1), *last


def _times(h: Any, r: Any, b: Any) -> Any:
    y = tf.matmul(h, r, transpose_b=True)
    return y if b is None else y + b


def _rnn_cell(op: Any, f: Any, d: int, xw: Any, r: Any, rb: Any, h: Any) -> tuple[Any, ...]:
    return (f[0](xw + _times(h, r, rb)),)


@rows.composed("RNN", arithmetic="S")
def rnn(op: Any, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None) -> Any:
    return _recurrence(op, ("Tanh",), _rnn_cell, x, w, r, b, lens, h)


@rows.composed("LSTM", arithmetic="S")
def lstm(
    op: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lens: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
) -> Any:
    def cell(op: Any, f: Any, d: int, xw: Any, r: Any, rb: Any, h: Any, c: Any) -> tuple[Any, ...]:
        i, o, forget, new = tf.split(xw + _times(h, r, rb), 4, -1)
        pi, po, pf = (0, 0, 0) if p is None else tf.split(p[d], 3)
        i = f[0](i if p is None else i + pi * c)
        forget = (
            1 - i
            if getattr(op, "input_forget", 0)
            else f[0](forget if p is None else forget + pf * c)
        )
        c = forget * c + i * f[1](new)
        return f[0](o if p is None else o + po * c) * f[2](c), c

    return _recurrence(op, ("Sigmoid", "Tanh", "Tanh"), cell, x, w, r, b, lens, h, c)


def _gru_cell(op: Any, f: Any, d: int, xw: Any, r: Any, rb: Any, h: Any) -> tuple[Any, ...]:
    xz, xr, xh = tf.split(xw, 3, -1)
    rz, rr, rh = tf.split(r, 3)
    bz, br, bh = (None, None, None) if rb is None else tf.split(rb, 3)
    z, reset = f[0](xz + _times(h, rz, bz)), f[0](xr + _times(h, rr, br))
    inner = reset * _times(h, rh, bh) if op.linear_before_reset else _times(reset * h, rh, bh)
    return ((1 - z) * f[1](xh + inner) + z * h,)


@rows.composed("GRU", arithmetic="S")
def gru(op: Any, x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None) -> Any:
    return _recurrence(op, ("Sigmoid", "Tanh"), _gru_cell, x, w, r, b, lens, h)


def _vjp(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    grads: Sequence[Any],
    wanted: Sequence[int],
) -> tuple[tuple[Any, ...], list[Any]]:
    sources = [inputs[i] for i in wanted]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        result = function(*inputs)
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    pairs = zip(outputs, grads, strict=False)
    flowing = [(y, tf.cast(dy, y.dtype)) for y, dy in pairs if dy is not None]
    if not flowing:
        return outputs, [None] * len(sources)
    ys, dys = zip(*flowing, strict=True)
    found = tape.gradient(ys, sources, output_gradients=list(dys))
    return outputs, [None if dx is None else tf.convert_to_tensor(dx) for dx in found]


_LACKING = (
    "Could not find device for node",
    "list of allowed values",
    "not supported on CPU",
    "not yet support",
    "Detected unsupported operations",
)
"""What TensorFlow says when it has no kernel for a dtype, a device or an attribute."""


class TensorFlow(Backend):
    """TensorFlow as it runs one function after another. One device a process; TF32 is off."""

    framework = "tensorflow"
    rows = rows
    ulps: ClassVar[Mapping[str, float]] = {"tanh": 8, "erf": 8, "divide": 3}
    """Measured on 3e6 points from -9 to 9 against longdouble: tanh 5.4 (float64: 7.8), erf 7.4;
    tf.math.reciprocal on 1e6 between 2^-30 and 2^30: 2.7, where its vector code is used."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        gpus = tf.config.list_physical_devices("GPU")
        used = [] if device == "cpu" else [gpus[int(device.partition(":")[2] or 0)]]
        tf.config.set_visible_devices(used, "GPU")
        tf.config.experimental.enable_tensor_float_32_execution(False)
        tf.get_logger().setLevel("ERROR")
        self._gpus = used

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        gpus = tf.config.list_physical_devices("GPU")
        return ("cpu", *(f"gpu:{i}" for i in range(len(gpus))))

    @property
    def version(self) -> str:
        return str(tf.__version__)

    def threads(self) -> int:
        """Threads within one operator on the CPU."""
        return int(os.environ.get("TF_NUM_INTRAOP_THREADS", "0")) or os.cpu_count() or 1

    def describe_device(self) -> str:
        if not self._gpus:
            return self.device
        details = tf.config.experimental.get_device_details(self._gpus[0])
        return str(details.get("device_name", self.device))

    def refusal(self, error: Exception) -> str:
        """The line that names the kernel which is lacking."""
        if not isinstance(error, (tf.errors.OpError, TypeError)):
            return ""
        lines = str(error).splitlines() or [""]
        told = [line for line in lines if any(phrase in line for phrase in _LACKING)]
        unimplemented = isinstance(error, tf.errors.UnimplementedError)
        return (told or (lines if unimplemented else [""]))[0][:300]

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Any:
        return tf.constant(array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array)

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return bits(np.asarray(tensor.numpy()))

    def wait(self, tensors: Sequence[Any]) -> None:
        tf.test.experimental.sync_devices()

    def address(self, tensor: Any) -> tuple[int, int] | None:
        if self._gpus:
            return None
        alias = tf.bitcast(tensor, tf.uint16) if tensor.dtype == tf.bfloat16 else tensor
        view = np.asarray(memoryview(alias))
        return view.ctypes.data, view.ctypes.data + view.nbytes

    def peak_memory(self) -> int | None:
        if not self._gpus:
            return None
        peak = int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
        tf.config.experimental.reset_memory_stats("GPU:0")
        return peak

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        return _vjp(function, inputs, grads, wanted)


class _Traced:
    """A function as graphs: one for each pattern of arguments, and in it one for their shapes.

    Arguments that are the same tensor are one argument of the graph: its gradient is whole.
    """

    def __init__(self, owner: TensorFlowCompiled, function: Callable[..., Any]) -> None:
        self.owner, self.function = owner, function
        self.graphs: dict[tuple[Any, ...], Any] = {}
        self.fixed = False
        """Whether integer arguments are constants of the graph."""

    def __call__(self, *inputs: Any) -> Any:
        if not tf.executing_eagerly():  # within another graph
            return self.function(*inputs)
        try:
            return self._run(inputs)
        except _ValueNeededError:
            self.fixed = True
            return self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> Any:
        given: list[Any] = []
        places: dict[int, int] = {}
        pattern: list[Any] = []
        for x in inputs:
            if x is None:
                pattern.append(None)
            elif self.fixed and x.dtype.is_integer:
                pattern.append((x.dtype.name, tuple(x.shape), x.numpy().tobytes()))
            else:
                place = places.setdefault(id(x), len(given))
                pattern.append(place)
                if place == len(given):
                    given.append(x)
        key = tuple(pattern)
        if key not in self.graphs:
            self.graphs[key] = self._graph(key)
        return self.graphs[key](*given)

    def _graph(self, pattern: tuple[Any, ...]) -> Any:
        def traced(*given: Any) -> Any:
            outputs = self.function(*(_argument(place, given) for place in pattern))
            self.owner.traces += 1
            return outputs

        return tf.function(traced, autograph=False, jit_compile=self.owner.xla)


def _argument(place: Any, given: Sequence[Any]) -> Any:
    if place is None or isinstance(place, int):
        return None if place is None else given[place]
    dtype, shape, data = place
    return tf.constant(np.frombuffer(data, dtype).reshape(shape))


class TensorFlowCompiled(TensorFlow):
    """Graphs by tf.function; the gradient is part of the graph."""

    mode = "compiled"
    xla = False

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.reset()
        self.traces = 0

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _Traced(self, function)

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        inner = function.function if isinstance(function, _Traced) else function
        n, chosen = len(inputs), tuple(wanted)
        if (inner, n, chosen) not in self._gradients:
            if len(self._gradients) > 15:
                self._gradients.pop(next(iter(self._gradients)))
            self._gradients[inner, n, chosen] = _Traced(
                self, lambda *both: _vjp(inner, both[:n], both[n:], chosen)
            )
        outputs, found = self._gradients[inner, n, chosen](*inputs, *grads)
        return tuple(outputs), list(found)

    def compilations(self) -> int | None:
        return self.traces

    def reset(self) -> None:
        self._gradients: dict[tuple[Any, ...], _Traced] = {}


class TensorFlowXla(TensorFlowCompiled):
    """Graphs compiled by XLA; what XLA cannot compile raises, nothing falls back."""

    mode = "xla"
    xla = True
