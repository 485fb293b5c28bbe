"""Cases of convolutions and poolings: kernels, strides, dilations, groups and asymmetric paddings
together, on the smallest sizes that show them; windows that hang over the border, and never one
that covers no element.
"""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from d5test.case import Operator, Tensor
from d5test.reference.operators import windows
from d5test.strategies.draw import FAR_BELOW, MANY, NEGATIVE, ORDINARY, Draw, Regime, Shape
from d5test.strategies.registry import attributes, choices, inputs
from d5test.strategies.sizes import CHANNELS, DEPTHWISE, DIFFERENT

NETWORKS = ((3, 1), (3, 2), (5, 2), (5, 3), (7, 2))
"""Kernels and strides of networks, alike along each axis; padded by half a kernel."""
AUTO_PADS = ("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
"""The paddings of ONNX, explicit ones first and most often."""
FAR = 13
"""The largest kernel, stride and dilation; no unrolled loop is so long."""
NORMS = (2, 1, 3)
NONZERO: tuple[Regime, ...] = ("nonzero", "positive", ("uniform", 0.5, 1))
"""Of no window of zeros the norm has a gradient."""
REGIMES: dict[type[Operator], tuple[Regime, ...]] = {
    windows.MaxPool: ("normal", "heavy", "uniform", NEGATIVE, "ties", FAR_BELOW),
    windows.GlobalMaxPool: ("normal", "heavy", "uniform", NEGATIVE, "ties", FAR_BELOW),
    windows.LpPool: NONZERO,
    windows.GlobalLpPool: NONZERO,
}


def rank_of(d: Draw, pads: Shape | None, *attributes: Shape | None) -> int:
    """How many spatial axes the attributes speak of; any number if they are all left out."""
    for attribute in filter(None, attributes):
        return len(attribute)
    return len(pads) // 2 if pads else d.integer(1, 3)


def spatial(
    d: Draw, kernel: Shape, dilations: Shape | None, pads: Shape | None, auto_pad: str
) -> Shape:
    """Sizes of at least one window, in which a dilated window finds an element."""
    rank = len(kernel)
    dilations = dilations or (1,) * rank
    pads = pads if pads and auto_pad == "NOTSET" else (0,) * 2 * rank
    sizes = []
    for i, (k, dilation) in enumerate(zip(kernel, dilations, strict=True)):
        extent = 1 if auto_pad.startswith("SAME") else (k - 1) * dilation + 1
        least = max(dilation, extent - pads[i] - pads[i + rank])
        sizes.append(d.side(least, max(least + 1, 5 if rank < 3 else 3)))
    return tuple(sizes)


@attributes(windows.Conv)
def conv_attributes(d: Draw) -> windows.Conv:
    """One to three axes, one to three groups, each attribute also left out.

    Half of those with as many channels as networks have, have networks' kernels, too.
    """
    rank = d.integer(1, 3)
    auto_pad = d.choose(AUTO_PADS)
    op = windows.Conv(
        auto_pad=auto_pad,
        dilations=d.maybe(along(d, rank, 2)),
        group=d.groups(3),
        kernel_shape=along(d, rank, most(rank)),
        pads=d.maybe(alike(d.vector(2 * rank, 0, 2))) if auto_pad == "NOTSET" else None,
        strides=d.maybe(along(d, rank, most(rank))),
    )
    if d.sizes.kind not in (CHANNELS, DEPTHWISE) or d.flag():
        return op
    side, step = d.choose(NETWORKS if rank < 3 else NETWORKS[:2])
    return replace(
        op,
        auto_pad="NOTSET",
        dilations=None,
        kernel_shape=(side,) * rank,
        pads=(side // 2,) * 2 * rank,
        strides=(step,) * rank,
    )


@inputs(windows.Conv)
def conv_inputs(d: Draw, op: windows.Conv) -> tuple[Tensor | None, ...]:
    """Sizes of at least one window; with a bias, with None in its place, and with neither."""
    rank = rank_of(d, op.pads, op.kernel_shape, op.strides, op.dilations)
    kernel = op.kernel_shape or d.vector(rank, 1, most(rank))
    n, c, m = channels(d, rank, op.group)
    size = spatial(d, kernel, op.dilations, op.pads, op.auto_pad)
    x, w = (n, op.group * c, *size), (op.group * m, c, *kernel)
    return with_bias(d, x, w, op.group * m)


@attributes(windows.ConvTranspose)
def conv_transpose_attributes(d: Draw) -> windows.ConvTranspose:
    """The output's size from paddings, given itself, or a multiple of the input's."""
    rank = d.integer(1, 3)
    auto_pad = d.choose(AUTO_PADS)
    strides = along(d, rank, most(rank))
    dilations = d.maybe(along(d, rank, 2))
    least = max(strides) if auto_pad.startswith("SAME") else 1
    kernel = d.vector(rank, least, max(least, most(rank)))
    explicit = auto_pad == "NOTSET" and d.flag()
    return windows.ConvTranspose(
        auto_pad=auto_pad,
        dilations=dilations,
        group=d.groups(3),
        kernel_shape=kernel,
        output_padding=d.maybe(tuple(d.integer(0, s - 1) for s in strides)),
        output_shape=d.vector(rank, 4, 7) if explicit else None,
        pads=d.maybe(alike(d.vector(2 * rank, 0, 2)))
        if auto_pad == "NOTSET" and not explicit
        else None,
        strides=strides,
    )


@inputs(windows.ConvTranspose)
def conv_transpose_inputs(d: Draw, op: windows.ConvTranspose) -> tuple[Tensor | None, ...]:
    """Sizes that leave an output after the padding is cut off, or reach the size that is given."""
    rank = rank_of(d, op.pads, op.kernel_shape, op.strides, op.dilations, op.output_shape)
    kernel = op.kernel_shape or d.vector(rank, 1, most(rank))
    n, c, m = channels(d, rank, op.group)
    strides = op.strides or (1,) * rank
    dilations, extra = op.dilations or (1,) * rank, op.output_padding or (0,) * rank
    pads = op.pads if op.pads and op.auto_pad == "NOTSET" else (0,) * 2 * rank
    size = []
    for i in range(rank):
        wanted = op.output_shape[-rank:][i] if op.output_shape else 1 + pads[i] + pads[i + rank]
        one = extra[i] + (kernel[i] - 1) * dilations[i] + 1
        least = 1 + max(0, -(-(wanted - one) // strides[i]))
        size.append(least if op.output_shape else d.side(least, max(2, least + 3 - rank)))
    x, w = (n, op.group * c, *size), (op.group * c, m, *kernel)
    return with_bias(d, x, w, op.group * m)


def channels(d: Draw, rank: int, group: int) -> Shape:
    """Samples, input and output channels of a group; few where much else is drawn.

    Every other case with groups has one for each channel.
    """
    few = rank == 3 or group > 1
    n = d.samples(most=2 if few else 3, empty=True)
    if d.sizes.kind == DEPTHWISE or (group > 1 and d.flag()):
        return n, 1, d.choose((1, 1, 1, 2))
    c, m = d.channels(2, most=2 if few else 3)
    return n, MANY if d.many() else c, m


def with_bias(d: Draw, x: Shape, w: Shape, m: int) -> tuple[Tensor | None, ...]:
    """x, w, and a bias of m elements, None, or nothing."""
    bias = d.maybe(d.addend((m,)))
    many = x[1] >= MANY
    drawn = *((d.tensor(s, "positive") for s in (x, w)) if many else d.factors(x, w)), bias
    return drawn if bias is not None or d.flag() else drawn[:2]


def most(rank: int) -> int:
    """The largest kernel and stride, mostly: smaller where there are three axes."""
    return 3 if rank < 3 else 2


def along(d: Draw, rank: int, most: int) -> Shape:
    """Kernels, strides or dilations of 1 to `most`; in one draw of four larger ones, too.

    In one of eight, one of up to two axes has a far larger one.
    """
    kind = d.any_of(("few", "few", "few", "more", "few", "few", "few", "far"))
    drawn = d.vector(rank, 1, most + 2 * (kind == "more"))
    if kind != "far" or rank == 3:
        return drawn
    axis, far = d.integer(0, rank - 1), d.integer(6, FAR)
    return (*drawn[:axis], far, *drawn[axis + 1 :])


def exact(op: Any, size: Shape) -> tuple[bool, ...]:
    """Along which axes the last of several windows ends where the padded input does."""
    at = windows.Windows.on_input(op, size, op.kernel_shape)
    return tuple(
        s > 1 and (n + b + e - (k - 1) * d - 1) % s == 0
        for n, b, e, k, d, s in zip(
            size, at.begin, at.end, at.kernel, at.dilations, at.strides, strict=True
        )
    )


def alike(pads: Shape, kernel: Shape | None = None) -> Shape:
    """These pads, in half of the draws made the same at both ends, at most half a kernel.

    Many frameworks pad in no other way.
    """
    if sum(pads) % 2:
        return pads
    rank = len(pads) // 2
    widest = map(max, pads[:rank], pads[rank:])
    return 2 * tuple(min(p, k // 2) for p, k in zip(widest, kernel or (4,) * rank, strict=True))


@attributes(windows.MaxPool)
def max_pool_attributes(d: Draw) -> windows.MaxPool:
    """Windows as `pool` draws them, indices in both orders."""
    return windows.MaxPool(**pool(d), storage_order=d.choose((0, 1)))


@attributes(windows.AveragePool)
def average_pool_attributes(d: Draw) -> windows.AveragePool:
    """Windows as `pool` draws them, with the padding counted and not."""
    return windows.AveragePool(**pool(d), count_include_pad=d.choose((0, 1)))


@attributes(windows.LpPool)
def lp_pool_attributes(d: Draw) -> windows.LpPool:
    """Windows as `pool` draws them, and norms."""
    return windows.LpPool(**pool(d), p=d.choose(NORMS))


choices(windows.GlobalLpPool, p=NORMS)


@inputs(windows.GlobalAveragePool, windows.GlobalLpPool, windows.GlobalMaxPool)
def global_pool_inputs(d: Draw, op: Operator) -> tuple[Tensor]:
    """One to three spatial axes."""
    n = d.samples(most=4, empty=True)
    shape = (n, *d.channels(1, most=5), *d.sides(d.integer(1, 3), most=5))
    return (d.tensor(shape, *REGIMES.get(type(op), ORDINARY)),)


def pool(d: Draw) -> dict[str, Any]:
    """The attributes that poolings share. ONNX wants every padding smaller than the kernel."""
    rank = d.integer(1, 3)
    kernel = along(d, rank, 3)
    auto_pad = d.choose(AUTO_PADS)
    explicit = auto_pad == "NOTSET"
    pads = tuple(d.integer(0, k - 1) for k in 2 * kernel) if explicit else ()
    return {
        "kernel_shape": kernel,
        "auto_pad": auto_pad,
        "ceil_mode": d.choose((0, 1)) if explicit else 0,
        "dilations": d.maybe(along(d, rank, 2)),
        "pads": d.maybe(alike(pads, kernel)) if explicit else None,
        "strides": d.maybe(along(d, rank, 3)),
    }


@inputs(windows.MaxPool, windows.AveragePool, windows.LpPool)
def pool_inputs(d: Draw, op: Any) -> tuple[Tensor]:
    """Sizes of at least one window. Values under a maximum differ, mostly: at a tie its gradient
    is the framework's choice.
    """
    size = spatial(d, op.kernel_shape, op.dilations, op.pads, op.auto_pad)
    if op.ceil_mode and d.sizes.kind == DIFFERENT and not d.degenerate:
        size = tuple(n + more for n, more in zip(size, exact(op, size), strict=True))
    n, channels = d.samples(most=3, empty=True), d.channels(1, most=4)
    shape: Shape = (n, *channels, *size)
    regimes = REGIMES.get(type(op), ())
    if isinstance(op, windows.MaxPool):
        regimes = (*regimes, ("equal", *range(2, len(shape))))
    return (d.tensor(shape, *regimes),)


@attributes(windows.Col2Im)
def col2im_attributes(d: Draw) -> windows.Col2Im:
    """Windows of two axes, or of as many as the image has."""
    return windows.Col2Im(
        dilations=d.maybe(along(d, 2, 2)),
        pads=d.maybe(alike(d.vector(4, 0, 1))),
        strides=d.maybe(along(d, 2, 2)),
    )


@inputs(windows.Col2Im)
def col2im_inputs(d: Draw, op: windows.Col2Im) -> tuple[Tensor, ...]:
    """Images of at least one window."""
    rank = 2 if op.pads or op.strides or op.dilations else d.choose((2, 2, 3))
    kernel = d.vector(rank, 1, most(rank))
    n, c = d.samples(), d.side(most=4)
    size = spatial(d, kernel, op.dilations, op.pads, "NOTSET")
    out = op.windows(size, kernel).out
    x = d.tensor((n, c * prod(kernel), prod(out)))
    return x, d.literal(size), d.literal(kernel)


choices(windows.CausalConvWithState, activation=("none", "silu", "swish"))


@inputs(windows.CausalConvWithState)
def causal_inputs(d: Draw, op: windows.CausalConvWithState) -> tuple[Tensor | None, ...]:
    """Fewer steps than the kernel has, or more; with a bias, a past, or neither."""
    n, c, k = d.samples(most=3), *d.channels(1, most=4), d.integer(1, 4)
    x, w = d.factors((n, c, d.side()), (c, 1, k))
    b, past = d.maybe(d.addend((c,))), d.maybe(d.tensor((n, c, k - 1)))
    return (x, w, b, past) if past is not None else (x, w, b) if b is not None else (x, w)


@attributes(windows.MaxUnpool)
def unpool_attributes(d: Draw) -> windows.MaxUnpool:
    """Windows beside each other, apart, or one behind the other, padded by less than they have."""
    kernel = d.vector(d.integer(1, 3), 1, 3)
    begin = tuple(d.integer(0, (k - 1) // 2) for k in kernel)
    ends = zip(begin, kernel, strict=True)
    end = begin if d.flag() else tuple(d.integer(0, k - 1 - b) for b, k in ends)
    strides = d.choose((kernel, tuple(k + 1 for k in kernel), None))
    return windows.MaxUnpool(kernel_shape=kernel, pads=d.maybe(begin + end), strides=strides)


@inputs(windows.MaxUnpool)
def unpool_inputs(d: Draw, op: windows.MaxUnpool) -> tuple[Tensor, ...]:
    """Of each window one element, at the same place in all. The size of y is its own, also where
    it is given: in a larger one ONNX Runtime counts the places, ONNX's node test in its own.
    """
    rank = len(op.kernel_shape)
    shape = d.sides(2 + rank, least=2, most=4, few=True)
    out, pads = op.out(shape), op.pads or (0,) * 2 * rank
    places = [range(n) for n in shape[:2]]
    for i, n in enumerate(shape[2:]):
        step = op.strides[i] if op.strides else 1
        first = d.integer(0, op.kernel_shape[i] - 1 - pads[i] - pads[rank + i])
        places.append(range(first, first + n * step, step))
    indices = np.ravel_multi_index(np.ix_(*places), out)
    given = d.tensor(shape), d.literal(indices.ravel().tolist(), shape=shape)
    return (*given, d.literal(out))[: d.choose((2, 3))]
