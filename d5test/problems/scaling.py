"""A problem made small enough to be judged in milliseconds, in batch and space, then in channels.

What chooses a kernel stays: kernel, strides, dilations and paddings, the size of a head, whether
there is one sample or several, and of each number of channels its remainder modulo 16, by which
kernels in vectors tell whole ones from tails.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from d5test.case import Case, Operator
from d5test.reference.operators.attention import Attention
from d5test.reference.operators.linear import Gemm, MatMul
from d5test.reference.operators.normalisation import LRN, BatchNormalization, GroupNormalization
from d5test.reference.operators.recurrent import GRU, LSTM, RNN
from d5test.reference.operators.reductions import LogSoftmax, Softmax
from d5test.reference.operators.windows import (
    AveragePool,
    Conv,
    ConvTranspose,
    GlobalAveragePool,
    MaxPool,
)

Shape = tuple[int, ...]
Shapes = tuple[Any, ...]
"""Of the inputs."""

WORK = 2_000_000
"""Scalar multiplications that a small problem may have, forward."""
ELEMENTS = 40_000
"""Elements that an input of a small problem may have. With both, its gradient takes some 40 ms."""
VECTOR = 16
"""Elements of float32 in the longest vectors of today's processors."""
STEPS = 3
"""Of a recurrence: its bars grow with each, in 16 bits beyond telling anything."""
ROWS = 8
"""Rows of a matrix for each element along one axis of an image."""


@dataclass(frozen=True)
class Limits:
    """The most samples and heads, elements along an axis of an image, and channels.

    With `taps` each element of a kernel meets one of the image, however far it is dilated.
    """

    batch: int
    space: int
    width: int
    taps: bool = True

    @property
    def rows(self) -> int:
        """The most rows of a matrix, or positions of a sequence."""
        return ROWS * self.space


LADDER = tuple(
    Limits(*limits)
    for limits in (
        (4, 64, 4096), (2, 32, 2048), (2, 16, 1024), (2, 8, 512), (2, 8, 256), (2, 4, 256),
        (2, 4, 192), (2, 4, 128), (2, 4, 96), (2, 4, 64), (2, 2, 64), (2, 2, 32), (2, 1, 16),
    )
)  # fmt: skip
"""What is tried, in this order: space goes before channels."""


def scaled(case: Case) -> Case | None:
    """The case within the first limits that make it small; `None` where none of them does."""
    for limits in (*LADDER, replace(LADDER[-1], taps=False)):
        smaller = within(case, limits)
        work = smaller.op.multiplications(*smaller.shapes) or 0
        if work <= WORK and all(prod(shape or ()) <= ELEMENTS for shape in smaller.shapes):
            return smaller
    return None


def within(case: Case, limits: Limits) -> Case:
    """The case with all sizes within limits."""
    op, shapes = RULES[type(case.op)](case.op, case.shapes, limits)
    inputs = zip(case.inputs, shapes, strict=True)
    small = (None if t is None else replace(t, shape=shape) for t, shape in inputs)
    return replace(case, op=op, inputs=tuple(small))


def narrowed(side: int, most: int) -> int:
    """A side of at most `most`, with the remainder modulo `VECTOR` that `side` has, if it fits."""
    if side <= most or most <= VECTOR:
        return min(side, most)
    return most - (most - side) % VECTOR


def grouped(group: int, each: Shape, width: int) -> tuple[int, Shape]:
    """How many groups, of how many channels: both sides of a group in `each`."""
    each = tuple(narrowed(channels, width) for channels in each)
    return narrowed(group, max(2, width // max(each))), each


def _windows(op: Any, shapes: Shapes, limits: Limits) -> Shape:
    """The sizes of an image on which at most `limits.space` windows fit along each axis."""
    rank, size = len(op.kernel_shape), shapes[0][2:]
    less = []
    dilations = op.dilations or (1,) * rank
    for i, (x, k, stride, dilation) in enumerate(
        zip(size, op.kernel_shape, op.strides, dilations, strict=True)
    ):
        padded = x + op.pads[i] + op.pads[i + rank]
        out = (padded - dilation * (k - 1) - 1) // stride + 1
        met = min(x, dilation * (k - 1) + 1 - min(op.pads[i], op.pads[i + rank]))
        least = met if limits.taps else 1
        less.append(max(1, least, x - max(0, out - limits.space) * stride))
    return tuple(less)


def _conv(op: Conv, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    x, w, *bias = shapes
    group, (c, m) = grouped(op.group, (w[1], w[0] // op.group), limits.width)
    small = (min(x[0], limits.batch), group * c, *_windows(op, shapes, limits))
    return op.with_(group=group), (small, (group * m, c, *w[2:]), *((group * m,) for _ in bias))


def _conv_transpose(op: Any, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    x, w, *bias = shapes
    group, (c, m) = grouped(op.group, (w[0] // op.group, w[1]), limits.width)
    both = zip(op.pads[: len(op.pads) // 2], op.pads[len(op.pads) // 2 :], strict=True)
    least = (1 + sum(cut) for cut in both)  # something is left of the output
    size = (min(side, max(limits.space, few)) for side, few in zip(x[2:], least, strict=True))
    small = (min(x[0], limits.batch), group * c, *size)
    return op.with_(group=group), (small, (group * c, m, *w[2:]), *((group * m,) for _ in bias))


def _pool(op: Operator, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    ((n, c, *_),) = shapes
    size = _windows(op, shapes, limits)
    return op, ((min(n, limits.batch), narrowed(c, limits.width), *size),)


def _image(op: Operator, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    x, *parameters = shapes
    c = narrowed(x[1], limits.width)
    size = (min(side, limits.space) for side in x[2:])
    return op, ((min(x[0], limits.batch), c, *size), *((c,) for _ in parameters))


def _group_normalization(
    op: GroupNormalization, shapes: Shapes, limits: Limits
) -> tuple[Operator, Shapes]:
    x, *parameters = shapes
    groups, (each,) = grouped(op.num_groups, (x[1] // op.num_groups,), limits.width)
    _, ((n, _, *size), *_) = _image(op, shapes, limits)
    c = groups * each
    return op.with_(num_groups=groups), ((n, c, *size), *((c,) for _ in parameters))


def _gemm(op: Gemm, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    a, b, *c = shapes
    m, k = a[:: -1 if op.transA else 1]
    n = b[not op.transB]
    m, k, n = narrowed(m, limits.rows), narrowed(k, limits.width), narrowed(n, limits.width)
    return op, (
        (k, m) if op.transA else (m, k),
        (n, k) if op.transB else (k, n),
        *((n,) for _ in c),
    )


def _matmul(op: MatMul, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    (*samples, m, k), (*others, _, n) = shapes
    m, k, n = narrowed(m, limits.rows), narrowed(k, limits.width), narrowed(n, limits.width)
    first, second = (tuple(min(s, limits.batch) for s in axes) for axes in (samples, others))
    return op, ((*first, m, k), (*second, k, n))


def _attention(op: Attention, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    (n, heads, queries, d), (_, kv, keys, _), (*_, e) = shapes
    n, each, kv = min(n, limits.batch), heads // kv, min(kv, limits.batch)
    queries, keys = narrowed(queries, limits.rows), narrowed(keys, limits.rows)
    return op, ((n, kv * each, queries, d), (n, kv, keys, d), (n, kv, keys, e))


def _rows(op: Operator, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    ((n, classes),) = shapes
    return op, ((narrowed(n, limits.rows), narrowed(classes, limits.width)),)


def _recurrent(op: Any, shapes: Shapes, limits: Limits) -> tuple[Operator, Shapes]:
    (steps, n, width), *_ = shapes
    h, width = narrowed(op.hidden_size, limits.width), narrowed(width, limits.width)
    x = (min(steps, STEPS), min(n, limits.batch), width)
    rows = op.gates * h
    return op.with_(hidden_size=h), (x, (1, rows, width), (1, rows, h), (1, 2 * rows))


Rule = Callable[[Any, Shapes, Limits], tuple[Operator, Shapes]]
RULES: dict[type[Operator], Rule] = {
    Conv: _conv, ConvTranspose: _conv_transpose, MaxPool: _pool, AveragePool: _pool,
    GlobalAveragePool: _image, BatchNormalization: _image, LRN: _image,
    GroupNormalization: _group_normalization, Gemm: _gemm, MatMul: _matmul,
    Attention: _attention, Softmax: _rows, LogSoftmax: _rows,
    RNN: _recurrent, LSTM: _recurrent, GRU: _recurrent,
}  # fmt: skip
"""How the sizes of an operator's problems become smaller."""
