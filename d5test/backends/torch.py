"""PyTorch, eager and compiled.

Requirements: torch 2.11 or later. Float32 multiplications are IEEE's, not TF32's. A row calls what
a PyTorch user would call; where torch has one function for the usual attributes only, the row
composes the others and says so in its docstring. Views (reshape, permute, split, slices, expand)
are returned as torch returns them: sharing memory with the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import _VF, Tensor

from d5test.backends.base import Backend, Table, Unsupported

Ints = tuple[int, ...]
rows = Table()


def integers(x: Tensor) -> Ints:
    """The values of an integer tensor that is an argument in torch: a shape, axes, pads.

    The compiled backend has them beside the tensor, since `tolist` would break its graph.
    """
    known: Ints | None = getattr(x, "known", None)
    return tuple(x.reshape(-1).tolist()) if known is None else known


def outwards(begin: Sequence[int], end: Sequence[int]) -> list[int]:
    """Paddings as `F.pad` wants them: the last axis first, begin and end alternating."""
    return [side for pair in zip(begin[::-1], end[::-1], strict=True) for side in pair]


rows.elementwise(
    {
        "Relu": torch.relu,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "Exp": torch.exp,
        "Log": torch.log,
        "Sqrt": torch.sqrt,
        "Erf": torch.erf,
        "Abs": torch.abs,
        "Neg": torch.neg,
        "Reciprocal": torch.reciprocal,
        "Add": torch.add,
        "Sub": torch.sub,
        "Mul": torch.mul,
        "Div": torch.div,
        "MatMul": torch.matmul,
        "Where": torch.where,
    },
)


@rows.native("LeakyRelu")
def leaky_relu(op: Any, x: Tensor) -> Tensor:
    return F.leaky_relu(x, op.alpha)


# Its erf has an absolute error of 11 u (oneDNN's, contiguous inputs; measured: 10.9 over 10^5
# values) or 7 u (torch's own, other layouts; 6.8), also near 0: 1 + erf has to be granted it.
@rows.native("Gelu", arithmetic="F", ulps={"erf": 8.0, "add": 4.0})
def gelu(op: Any, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=op.approximate)


@rows.native("Softplus")
def softplus(op: Any, x: Tensor) -> Tensor:
    """The identity above a threshold, which torch sets where float32 cannot tell: at 20."""
    return F.softplus(x, threshold=40 if x.dtype == torch.float64 else 20)


@rows.native("Pow")
def power(op: Any, x: Tensor, y: Tensor) -> Tensor:
    return torch.pow(x, y).to(x.dtype)


@rows.native("Max")
def maximum(op: Any, *tensors: Tensor) -> Tensor:
    """One function for two inputs; composed for more."""
    return reduce(torch.maximum, tensors) if len(tensors) > 1 else tensors[0].clone()


@rows.native("Min")
def minimum(op: Any, *tensors: Tensor) -> Tensor:
    """One function for two inputs; composed for more."""
    return reduce(torch.minimum, tensors) if len(tensors) > 1 else tensors[0].clone()


@rows.native("Gemm")
def gemm(op: Any, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a, b = (a.t() if op.transA else a), (b.t() if op.transB else b)
    if c is None:
        return torch.addmm(a.new_zeros(()), a, b, beta=0, alpha=op.alpha)
    return torch.addmm(c, a, b, beta=op.beta, alpha=op.alpha)


# of three operands: an intermediate product is stored
@rows.native("Einsum", arithmetic="S")
def einsum(op: Any, *tensors: Tensor) -> Tensor:
    return torch.einsum(op.equation, *tensors)


CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
GLOBAL_POOL = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def by_rank(functions: dict[int, Any], x: Tensor) -> Any:
    """The function for as many spatial axes as `x` has."""
    if x.ndim - 2 not in functions:
        raise Unsupported(f"torch has windows over 1, 2 or 3 spatial axes, not {x.ndim - 2}")
    return functions[x.ndim - 2]


@dataclass(frozen=True)
class Windows:
    """How windows lie on the spatial axes: ONNX's attributes with all defaults and pads found."""

    size: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    begin: Ints
    end: Ints
    ceil: bool

    @classmethod
    def of(cls, op: Any, size: Ints, kernel: Ints) -> Windows:
        n = len(size)
        strides, dilations = op.strides or (1,) * n, op.dilations or (1,) * n
        pads = op.pads or (0,) * (2 * n)
        begin, end = tuple(pads[:n]), tuple(pads[n:])
        if op.auto_pad == "VALID":
            begin = end = (0,) * n
        elif op.auto_pad != "NOTSET":
            axes = zip(size, kernel, strides, dilations, strict=True)
            total = [max(0, (-(-i // s) - 1) * s + (k - 1) * d + 1 - i) for i, k, s, d in axes]
            less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
            begin, end = (less, more) if op.auto_pad == "SAME_UPPER" else (more, less)
        ceil = bool(getattr(op, "ceil_mode", 0)) and op.auto_pad == "NOTSET"
        return cls(size, kernel, tuple(strides), tuple(dilations), begin, end, ceil)

    @property
    def plain(self) -> bool:
        """Whether torch's pools take these pads: the same on both sides, at most half a kernel."""
        return self.begin == self.end and all(
            2 * p <= k for p, k in zip(self.begin, self.kernel, strict=True)
        )

    @property
    def reach(self) -> Ints:
        """The padding behind each axis at which its last window ends."""
        reach = []
        axes = (self.size, self.kernel, self.strides, self.dilations, self.begin, self.end)
        for i, k, s, d, b, e in zip(*axes, strict=True):
            extent = (k - 1) * d + 1
            steps = i + b + e - extent
            last = (-(-steps // s) if self.ceil else steps // s) * s
            if self.ceil and last >= i + b:  # a window in the padding alone is none
                last -= s
            reach.append(last + extent - i - b)
        return tuple(reach)


# float16 without the processor's own support is summed in float16
@rows.native("Conv", arithmetic="S")
def conv(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Composed (padded first) if the pads differ between the two sides."""
    convolve, at = by_rank(CONV, x), Windows.of(op, tuple(x.shape[2:]), tuple(w.shape[2:]))
    pads = at.begin
    if at.begin != at.end:
        x, pads = F.pad(x, outwards(at.begin, at.end)), (0,) * len(pads)
    return convolve(x, w, b, at.strides, pads, at.dilations, op.group)


# as Conv
@rows.native("ConvTranspose", arithmetic="S")
def conv_transpose(op: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """Composed (cut or extended, then biased) if pads differ or the output padding is large."""
    convolve, at = by_rank(CONV_TRANSPOSE, x), Windows.of(op, tuple(x.shape[2:]), w.shape[2:])
    begin, end = at.begin, at.end
    more = tuple(op.output_padding or (0,) * len(begin))
    axes = list(zip(at.size, at.kernel, at.strides, at.dilations, more, strict=True))
    shape = op.output_shape
    if shape is None and op.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        shape = [i * s for i, _, s, _, _ in axes]
    if shape is not None:
        over = [
            (i - 1) * s + (k - 1) * d + 1 + m - o
            for (i, k, s, d, m), o in zip(axes, shape[-len(axes) :], strict=True)
        ]
        upper = op.auto_pad == "SAME_UPPER"
        begin = tuple(max(0, t) // 2 if upper else max(0, t) - max(0, t) // 2 for t in over)
        end = tuple(t - b for t, b in zip(over, begin, strict=True))
    if begin == end and min(begin) >= 0 and all(m < max(s, d) for _, _, s, d, m in axes):
        return convolve(x, w, b, at.strides, begin, more, op.group, at.dilations)
    y = convolve(x, w, None, at.strides, 0, 0, op.group, at.dilations)
    y = F.pad(y, outwards([-p for p in begin], [m - p for m, p in zip(more, end, strict=True)]))
    return y if b is None else y + b.reshape(-1, *(1,) * len(begin))


@rows.native("MaxPool", outputs=1)
def max_pool(op: Any, x: Tensor) -> Tensor:
    """Composed (padded with -inf first) if the pads differ or exceed half a kernel.

    torch counts the indices within each plane, ONNX through the whole tensor: left out.
    """
    pool, at = by_rank(MAX_POOL, x), Windows.of(op, tuple(x.shape[2:]), tuple(op.kernel_shape))
    if at.plain:
        return pool(x, at.kernel, at.strides, at.begin, at.dilations, at.ceil)
    x = F.pad(x, outwards(at.begin, at.reach), value=-math.inf)
    return pool(x, at.kernel, at.strides, 0, at.dilations)


@rows.native("AveragePool")
def average_pool(op: Any, x: Tensor) -> Tensor:
    """Composed (a convolution with ones) if dilated, or pads differ or exceed half a kernel."""
    pool, at = by_rank(AVERAGE_POOL, x), Windows.of(op, tuple(x.shape[2:]), tuple(op.kernel_shape))
    include = bool(op.count_include_pad)
    # avg_pool3d wants the kernel to fit into the input before padding
    fits = x.ndim < 5 or all(n >= k for n, k in zip(x.shape[2:], at.kernel, strict=True))
    if at.plain and max(at.dilations) == 1 and fits:
        return pool(x, at.kernel, at.strides, at.begin, at.ceil, include)

    def sums(x: Tensor) -> Tensor:
        n, c = x.shape[:2]
        planes, ones = x.flatten(0, 1).unsqueeze(1), x.new_ones((1, 1, *at.kernel))
        y = by_rank(CONV, x)(planes, ones, None, at.strides, 0, at.dilations)
        return y.squeeze(1).unflatten(0, (n, c))

    counted = F.pad(x.new_ones((1, 1, *at.size)), outwards(at.begin, at.end), value=include)
    behind = [r - e for r, e in zip(at.reach, at.end, strict=True)]
    counted = F.pad(counted, outwards((0,) * len(behind), behind))
    return sums(F.pad(x, outwards(at.begin, at.reach))) / sums(counted)


@rows.native("GlobalAveragePool")
def global_average_pool(op: Any, x: Tensor) -> Tensor:
    return by_rank(GLOBAL_POOL, x)(x, 1)


# running statistics are buffers, through which torch never differentiates
@rows.native("BatchNormalization", outputs=1, stopped=(3, 4))
def batch_normalization(
    op: Any, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    """The running statistics are left out: torch keeps an unbiased variance, ONNX a biased one.

    torch has no gradient of the given mean and variance.
    """
    if not op.training_mode:
        return F.batch_norm(x, mean.detach(), var.detach(), scale, b, False, 0.0, op.epsilon)
    if x.numel() == x.shape[1]:
        raise Unsupported("F.batch_norm trains on more than one value per channel")
    return F.batch_norm(x, None, None, scale, b, True, 0.0, op.epsilon)


# sums of its gradient over the samples run in 16 bits
@rows.native("LayerNormalization", arithmetic="S", outputs=1)
def layer_normalization(op: Any, x: Tensor, scale: Tensor, b: Tensor | None = None) -> Tensor:
    """Composed (scaled afterwards) if the scale also varies over the axes before `axis`.

    Mean and deviation are left out: torch differentiates `native_layer_norm` through neither.
    """
    shape = x.shape[op.axis :]
    if scale.ndim <= len(shape) and (b is None or b.ndim <= len(shape)):
        return F.layer_norm(
            x, shape, scale.expand(shape), b if b is None else b.expand(shape), op.epsilon
        )
    y = F.layer_norm(x, shape, None, None, op.epsilon) * scale
    return y if b is None else y + b


@rows.native("RMSNormalization")
def rms_normalization(op: Any, x: Tensor, scale: Tensor) -> Tensor:
    """Composed (scaled afterwards) if the scale also varies over the axes before `axis`."""
    shape = x.shape[op.axis :]
    if scale.ndim <= len(shape):
        return F.rms_norm(x, shape, scale.expand(shape), op.epsilon)
    return F.rms_norm(x, shape, None, op.epsilon) * scale


@rows.native("GroupNormalization")
def group_normalization(op: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.group_norm(x, op.num_groups, scale, bias, op.epsilon)


@rows.native("Softmax")
def softmax(op: Any, x: Tensor) -> Tensor:
    return torch.softmax(x, op.axis)


@rows.native("LogSoftmax")
def log_softmax(op: Any, x: Tensor) -> Tensor:
    return torch.log_softmax(x, op.axis)


def options(op: Any, weight: Tensor | None) -> dict[str, Any]:
    """What both losses take. Weights have no gradient; no label is -100, torch's ignored one."""
    return {
        "weight": weight if weight is None else weight.detach(),
        "ignore_index": -100 if op.ignore_index is None else op.ignore_index,
        "reduction": op.reduction,
    }


@rows.native("SoftmaxCrossEntropyLoss", outputs=1)
def cross_entropy(op: Any, x: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """`F.cross_entropy` keeps its log-probabilities to itself: left out."""
    return F.cross_entropy(x, labels.long(), **options(op, weights))


@rows.native("NegativeLogLikelihoodLoss")
def nll_loss(op: Any, x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    return F.nll_loss(x, labels.long(), **options(op, weight))


def reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduced(op: Any, x: Tensor, axes: Tensor | None = None) -> Tensor:
        dims = () if axes is None else integers(axes)
        if not dims and op.noop_with_empty_axes:
            return x.clone()
        return function(x, dim=dims or tuple(range(x.ndim)), keepdim=bool(op.keepdims))

    return reduced


rows.native("ReduceSum")(reduction(torch.sum))
rows.native("ReduceMean")(reduction(torch.mean))
rows.native("ReduceMax")(reduction(torch.amax))
rows.native("ReduceLogSumExp")(reduction(torch.logsumexp))


@rows.native("Reshape")
def reshape(op: Any, x: Tensor, shape: Tensor) -> Tensor:
    sides = integers(shape)
    if not op.allowzero:
        sides = tuple(side or x.shape[i] for i, side in enumerate(sides))
    return torch.reshape(x, sides)


@rows.native("Transpose")
def transpose(op: Any, x: Tensor) -> Tensor:
    return torch.permute(x, tuple(range(x.ndim))[::-1] if op.perm is None else op.perm)


@rows.native("Concat")
def concat(op: Any, *tensors: Tensor) -> Tensor:
    return torch.cat(tensors, op.axis)


@rows.native("Split")
def split(op: Any, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    if sizes is not None:
        return tuple(torch.split(x, list(integers(sizes)), op.axis))
    side, n = x.shape[op.axis], op.num_outputs
    chunk = -(-side // n)
    sides = [max(0, min(chunk, side - i * chunk)) for i in range(n)]
    return tuple(torch.split(x, sides, op.axis))


@rows.native("Slice")
def slices(
    op: Any,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """Composed (flipped) if a step is negative, which torch's slices do not know."""
    first, last = integers(starts), integers(ends)
    dims = tuple(range(len(first))) if axes is None else integers(axes)
    strides = (1,) * len(first) if steps is None else integers(steps)
    index, flipped = [slice(None)] * x.ndim, []
    for start, end, axis, step in zip(first, last, dims, strides, strict=True):
        side, back = x.shape[axis], int(step < 0)
        start, end = (i + side if i < 0 else i for i in (start, end))
        taken = range(min(max(start, 0), side - back), min(max(end, -back), side - back), step)
        if back:
            taken = taken[::-1]
            flipped.append(axis)
        index[axis] = slice(taken.start, taken.stop, taken.step) if taken else slice(0, 0)
    return torch.flip(x[tuple(index)], flipped) if flipped else x[tuple(index)]


# its gradient adds up repeated indices in 16 bits
@rows.native("Gather", arithmetic="S")
def gather(op: Any, x: Tensor, indices: Tensor) -> Tensor:
    return x[(slice(None),) * (op.axis % x.ndim) + (indices.long(),)]


# likewise the gradient of edge and wrap
@rows.native("Pad", arithmetic="S")
def pad(
    op: Any, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None
) -> Tensor:
    """Composed if there is a value (`F.pad` takes no tensor), and of indices where `F.pad` has
    no such mode: for leading axes, negative pads, more than one reflection or turn."""
    sides, dims = integers(pads), range(x.ndim) if axes is None else integers(axes)
    begin, end = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(dims):
        begin[axis], end[axis] = sides[i], sides[i + len(dims)]
    if op.mode == "constant":
        padded = F.pad(x, outwards(begin, end))
        if value is None:
            return padded
        inside = F.pad(torch.ones_like(x, dtype=torch.bool), outwards(begin, end))
        return torch.where(inside, padded, value)
    mode = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[op.mode]
    least = min([*begin[2:], *end[2:], 0])
    most = max(max(b, e) - i for b, e, i in zip(begin, end, x.shape, strict=True))
    if not any(begin[:2] + end[:2]) and 3 <= x.ndim <= 5 and least >= 0 > most and x.numel():
        return F.pad(x, outwards(begin[2:], end[2:]), mode=mode)
    for axis, (b, e) in enumerate(zip(begin, end, strict=True)):
        if b or e:
            n, fold = x.shape[axis], FOLDS[op.mode]
            taken = torch.tensor([fold(i, n) for i in range(-b, n + e)], device=x.device)
            x = torch.index_select(x, axis, taken)
    return x


FOLDS: dict[str, Callable[[int, int], int]] = {
    "reflect": lambda i, n: min(i % max(1, 2 * n - 2), -i % max(1, 2 * n - 2)),
    "edge": lambda i, n: min(max(i, 0), n - 1),
    "wrap": lambda i, n: i % n,
}
"""Which element of n stands at place i of a padded axis."""


@rows.native("Expand")
def expand(op: Any, x: Tensor, shape: Tensor) -> Tensor:
    """To the shape that both broadcast to: a side of 1 leaves the input's own."""
    sides = list(integers(shape))
    for i in range(1, 1 + min(len(sides), x.ndim)):
        sides[-i] = x.shape[-i] if sides[-i] == 1 else sides[-i]
    return torch.broadcast_to(x, (*x.shape[: max(0, x.ndim - len(sides))], *sides))


@rows.native("Attention", outputs=1)
def attention(
    op: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_k: Tensor | None = None,
    past_v: Tensor | None = None,
    valid: Tensor | None = None,
) -> Tensor:
    """Composed (a mask is made) if causal as well as masked, windowed, cached or padded."""
    if op.softcap or op.softmax_precision is not None:
        raise Unsupported("F.scaled_dot_product_attention has no softcap and no softmax_precision")
    merged = q.ndim == 3
    if merged:
        heads = (op.q_num_heads, op.kv_num_heads, op.kv_num_heads)
        q, k, v = (
            x.unflatten(2, (n, -1)).transpose(1, 2) for x, n in zip((q, k, v), heads, strict=True)
        )
    offset: Any = 0
    if past_k is not None and past_v is not None:
        offset = past_k.shape[2]
        k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
    rows_, keys = q.shape[2], k.shape[2]
    left, right = op.left_window_size, op.right_window_size
    causal = bool(op.is_causal)
    if mask is not None and mask.ndim == 1:
        mask = mask[None]  # one row for all queries; torch wants both axes
    if mask is not None and mask.shape[-1] < keys:
        rest = (0, keys - mask.shape[-1])
        mask = F.pad(mask, rest, value=False if mask.dtype == torch.bool else -math.inf)
    if valid is not None or left >= 0 or right >= 0 or (causal and (mask is not None or offset)):
        j = torch.arange(keys, device=q.device)
        if valid is not None:
            offset = (valid - rows_).reshape(-1, 1, 1, 1)
        at = torch.arange(rows_, device=q.device)[:, None] + offset
        seen = j < keys if valid is None else j < valid.reshape(-1, 1, 1, 1)
        seen = seen & (j <= at) if causal else seen
        seen = seen & (j >= at - left) if left >= 0 else seen
        seen = seen & (j <= at + right) if right >= 0 else seen
        if mask is None or mask.dtype == torch.bool:
            mask = seen if mask is None else mask & seen
        else:
            mask = torch.where(seen, mask, -math.inf)
        mask, causal = mask.expand(*mask.shape[:-2], rows_, keys), False
    y = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, scale=op.scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y.transpose(1, 2).flatten(2) if merged else y


@rows.composed("Dropout")
def dropout(op: Any, x: Tensor, ratio: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """With the mask given, since `F.dropout` draws its own; none: inference."""
    if mask is None:
        return x.clone()
    return x * mask * (1 / (1 - (0.5 if ratio is None else ratio.detach())))


def recurrence(
    op: Any, run: Any, order: Ints, activations: Sequence[str], tensors: Sequence[Any]
) -> tuple[Tensor, ...]:
    """One layer by `run`, a function of `torch._VF`, whose gates are ONNX's in this `order`."""
    x, w, r, b, lengths, *states = tensors
    directions, hidden = w.shape[0], r.shape[2]
    if lengths is not None:
        raise Unsupported("torch's recurrences take no lengths but packed sequences")
    for name in ("clip", "input_forget", "activation_alpha", "activation_beta"):
        if getattr(op, name, None):
            raise Unsupported(f"torch's recurrences have no {name}")
    needed = tuple(activations) * directions
    if tuple(getattr(op, "activations", None) or needed)[: len(needed)] != needed:
        raise Unsupported(f"this recurrence of torch's has no activations but {needed}")
    first, backwards = int(bool(op.layout)), op.direction == "reverse"
    x = x.transpose(0, 1) if first else x
    # torch.nn.RNNBase, which users call, checks this; torch._VF goes on and corrupts memory
    sizes = (len(order) * hidden, x.shape[2]), (len(order) * hidden, hidden)
    if (w.shape[1:], r.shape[1:]) != sizes or (b is not None and b.shape[1] != 2 * sizes[0][0]):
        raise RuntimeError(f"weights {tuple(w.shape)}, {tuple(r.shape)} do not fit {x.shape}")
    if any(s is not None and s.numel() != directions * x.shape[1] * hidden for s in states):
        raise RuntimeError("an initial state does not fit the batch and the hidden size")
    zeros = x.new_zeros((directions, x.shape[1], hidden))
    begin = tuple(
        zeros if s is None else s.transpose(0, 1).contiguous() if first else s for s in states
    )

    def ordered(gates: Tensor) -> Tensor:
        chunks = gates.chunk(len(order))
        return torch.cat([chunks[i] for i in order])

    weights = []
    for d in range(directions):
        biases = () if b is None else b[d].chunk(2)
        weights += [ordered(gates) for gates in (w[d], r[d], *biases)]
    y, *last = run(
        x.flip(0) if backwards else x,
        begin if len(begin) > 1 else begin[0],
        weights,
        b is not None,
        1,
        0.0,
        True,
        directions == 2,
        False,
    )
    y = y.flip(0) if backwards else y
    y = y.unflatten(2, (directions, hidden))
    if first:
        return (y.transpose(0, 1), *(s.transpose(0, 1) for s in last))
    return (y.transpose(1, 2), *last)


@rows.native("RNN")
def rnn(op: Any, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    f = op.activations[0] if op.activations else "Tanh"
    run = _VF.rnn_relu if f == "Relu" else _VF.rnn_tanh
    return recurrence(op, run, (0,), (f,), padded(tensors, 6))


# oneDNN's logistic function is 0 where float32 has only subnormal numbers
@rows.native("LSTM", flushes=True)
def lstm(op: Any, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    *tensors_, peepholes = padded(tensors, 8)
    if peepholes is not None:
        raise Unsupported("torch's LSTM has no peepholes")
    return recurrence(op, _VF.lstm, (0, 2, 3, 1), ("Sigmoid", "Tanh", "Tanh"), tensors_)


@rows.native("GRU")
def gru(op: Any, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    """Composed (step by step) if the reset comes before the linear map, which torch has not."""
    run = _VF.gru if op.linear_before_reset else reset_first
    return recurrence(op, run, (1, 0, 2), ("Sigmoid", "Tanh"), padded(tensors, 6))


def padded(tensors: tuple[Tensor | None, ...], n: int) -> tuple[Tensor | None, ...]:
    return tensors + (None,) * (n - len(tensors))


def reset_first(
    x: Tensor, begin: Tensor, weights: list[Tensor], biased: bool, *_: Any
) -> tuple[Tensor, Tensor]:
    """A GRU with gates r, z, n and n = tanh(Wn x + Rn (r h)), with `torch._VF.gru`'s arguments."""
    each, outputs, last = len(weights) // len(begin), [], []
    for d, h in enumerate(begin):
        w, r, *biases = weights[d * each : (d + 1) * each]
        wb, rb = biases if biased else (w.new_zeros(len(w)), w.new_zeros(len(w)))
        gates, hs = F.linear(x, w, wb + rb), []
        n = h.shape[-1]
        for t in range(len(x))[:: -1 if d else 1]:
            reset, z = torch.sigmoid(gates[t, :, : 2 * n] + h @ r[: 2 * n].T).chunk(2, 1)
            candidate = torch.tanh(gates[t, :, 2 * n :] + (reset * h) @ r[2 * n :].T)
            h = (1 - z) * candidate + z * h
            hs.append(h)
        outputs.append(torch.stack(hs[:: -1 if d else 1]))
        last.append(h)
    return torch.cat(outputs, 2), torch.stack(last)


class Torch(Backend):
    """PyTorch as a user calls it, one function after another."""

    framework = "torch"
    rows = rows
    layouts = ("contiguous", "transposed", "strided", "offset", "broadcast", "channels_last")
    mutable = True

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        return ("cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count())))

    @property
    def version(self) -> str:
        return str(torch.__version__)

    def threads(self) -> int:
        """Threads within one operator on the CPU."""
        return int(torch.get_num_threads())

    def describe_device(self) -> str:
        if self.device == "cpu":
            return f"cpu ({torch.backends.cpu.get_cpu_capability()})"
        return str(torch.cuda.get_device_name(self.device))

    def refusal(self, error: Exception) -> str:
        """`"avg_pool3d_out_frame" not implemented for 'Half'`, for one."""
        return str(error) if isinstance(error, NotImplementedError) else ""

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Tensor:
        """What lies between the values of a strided or before an offset tensor is NaN (or 0)."""
        x = self._tensor(array, dtype)
        filler = math.nan if x.is_floating_point() else 0
        if layout == "transposed":
            return x.mT.contiguous().mT if x.ndim > 1 else x
        if layout == "strided":
            return torch.stack((x, torch.full_like(x, filler)), -1)[..., 0]
        if layout == "offset":
            return torch.cat((x.new_full((1,), filler), x.flatten()))[1:].view(x.shape)
        if layout == "broadcast":
            self._one_slice(array)
            return x[:1].clone().expand_as(x)
        if layout == "channels_last":
            if x.ndim not in (4, 5):
                raise Unsupported(f"channels_last has 4 or 5 axes, not {x.ndim}")
            last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
            return x.contiguous(memory_format=last)
        return x

    def _tensor(self, array: NDArray[Any], dtype: str) -> Tensor:
        x = torch.from_numpy(np.array(array, order="C"))
        return (x.view(torch.bfloat16) if dtype == "bfloat16" else x).to(self.device)

    @staticmethod
    def _one_slice(array: NDArray[Any]) -> None:
        if array.ndim == 0 or len({one.tobytes() for one in array}) != 1:
            raise Unsupported("a broadcast tensor has equal slices along its first axis")

    def refill(self, tensor: Tensor, array: NDArray[Any], dtype: str) -> None:
        x = self._tensor(array, dtype)
        if tensor.ndim and tensor.stride(0) == 0 and len(tensor) > 1:
            self._one_slice(array)
            tensor, x = tensor[0], x[0]
        tensor.copy_(x)

    def get(self, tensor: Tensor) -> tuple[NDArray[Any], str]:
        x, name = tensor.detach().cpu(), str(tensor.dtype).removeprefix("torch.")
        return np.array((x.view(torch.uint16) if name == "bfloat16" else x).numpy()), name

    def wait(self, tensors: Sequence[Any]) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        """An input that is given twice, as one object, gets the sum of both gradients."""
        leaves = {id(inputs[i]): inputs[i].detach().requires_grad_() for i in wanted}
        outputs = function(*(leaves.get(id(x), x) for x in inputs))
        outputs = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
        flowing = [
            (y, dy)
            for y, dy in zip(outputs, grads, strict=True)
            if dy is not None and y.requires_grad
        ]
        values = tuple(y.detach() for y in outputs)
        if not flowing:
            return values, [None] * len(wanted)
        ys, dys = zip(*flowing, strict=True)
        xs = [leaves[id(inputs[i])] for i in wanted]
        return values, list(torch.autograd.grad(ys, xs, dys, allow_unused=True))

    def address(self, tensor: Tensor) -> tuple[int, int]:
        axes = zip(tensor.shape, tensor.stride(), strict=True)
        last = sum((side - 1) * stride for side, stride in axes) if tensor.numel() else -1
        return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()

    def peak_memory(self) -> int | None:
        if self.device == "cpu":
            return None
        most = int(torch.cuda.max_memory_allocated(self.device))
        torch.cuda.reset_peak_memory_stats(self.device)
        return most


class TorchCompiled(Torch):
    """`torch.compile` of the whole function, once for each shape; it never falls back to eager."""

    mode = "compiled"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        from torch import _dynamo  # as long an import as torch's own, which eager mode spares

        self._dynamo = _dynamo
        _dynamo.config.fail_on_recompile_limit_hit = True

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Tensor:
        x = super().put(array, dtype, layout)
        self._make_known(x, array)
        return x

    def refill(self, tensor: Tensor, array: NDArray[Any], dtype: str) -> None:
        super().refill(tensor, array, dtype)
        self._make_known(tensor, array)

    @staticmethod
    def _make_known(tensor: Tensor, array: NDArray[Any]) -> None:
        if array.dtype == np.int64 and array.ndim < 2:
            tensor.known = tuple(array.reshape(-1).tolist())

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = torch.compile(function, fullgraph=True, dynamic=False)

        def call(*inputs: Any) -> Any:
            try:
                return compiled(*inputs)
            except self._dynamo.exc.TorchDynamoException:
                function(*inputs)  # a row's own refusal, else what eager says, comes from here
                raise

        return call

    def compilations(self) -> int:
        return int(self._dynamo.utils.counters["stats"]["unique_graphs"])

    def reset(self) -> None:
        self._dynamo.reset()
        self._dynamo.utils.counters.clear()
