"""Cases of convolutions: kernels, strides, dilations, groups and asymmetric paddings together, on
the smallest sizes that show them."""

from __future__ import annotations

from d5test.case import Tensor
from d5test.reference.operators import convolution as ops
from d5test.strategies.draw import MANY, Draw, Shape
from d5test.strategies.registry import attributes, inputs
from d5test.strategies.windows import auto_pads, rank_of, spatial, vector


@attributes(ops.Conv)
def conv_attributes(d: Draw) -> ops.Conv:
    """One to three axes, one to three groups, each attribute also left out."""
    rank = d.integer(1, 3)
    auto_pad = d.choose(auto_pads())
    return ops.Conv(
        auto_pad=auto_pad,
        dilations=d.maybe(vector(d, rank, 1, 2)),
        group=d.integer(1, 3),
        kernel_shape=vector(d, rank, 1, most(rank)),
        pads=d.maybe(vector(d, 2 * rank, 0, 2)) if auto_pad == "NOTSET" else None,
        strides=d.maybe(vector(d, rank, 1, most(rank))),
    )


@inputs(ops.Conv)
def conv_inputs(d: Draw, op: ops.Conv) -> tuple[Tensor | None, ...]:
    """Sizes of at least one window; with a bias, with None in its place, and with neither."""
    rank = rank_of(d, op.kernel_shape, op.strides, op.dilations, op.pads)
    kernel = op.kernel_shape or vector(d, rank, 1, most(rank))
    n, c, m = channels(d, rank, op.group)
    size = spatial(d, kernel, op.dilations, op.pads, op.auto_pad)
    x, w = (n, op.group * c, *size), (op.group * m, c, *kernel)
    return with_bias(d, x, w, op.group * m)


@attributes(ops.ConvTranspose)
def conv_transpose_attributes(d: Draw) -> ops.ConvTranspose:
    """The output's size from paddings, given itself, or a multiple of the input's."""
    rank = d.integer(1, 3)
    auto_pad = d.choose(auto_pads())
    strides = vector(d, rank, 1, most(rank))
    dilations = d.maybe(vector(d, rank, 1, 2))
    least = max(strides) if auto_pad.startswith("SAME") else 1
    kernel = vector(d, rank, least, most(rank))
    explicit = auto_pad == "NOTSET" and d.flag()
    return ops.ConvTranspose(
        auto_pad=auto_pad,
        dilations=dilations,
        group=d.integer(1, 3),
        kernel_shape=kernel,
        output_padding=d.maybe(tuple(d.integer(0, s - 1) for s in strides)),
        output_shape=vector(d, rank, 4, 7) if explicit else None,
        pads=d.maybe(vector(d, 2 * rank, 0, 2)) if auto_pad == "NOTSET" and not explicit else None,
        strides=strides,
    )


@inputs(ops.ConvTranspose)
def conv_transpose_inputs(d: Draw, op: ops.ConvTranspose) -> tuple[Tensor | None, ...]:
    """Sizes that leave an output after the padding is cut off, or reach the size that is given."""
    rank = rank_of(d, op.kernel_shape, op.strides, op.dilations, op.pads, op.output_shape)
    kernel = op.kernel_shape or vector(d, rank, 1, most(rank))
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
    """Samples, input and output channels of a group; few where much else is drawn."""
    few = rank == 3 or group > 1
    n = d.side(most=2 if few else 3, empty=True)
    c, m = d.sides(2, most=2 if few else 3)
    return n, MANY if d.many() else c, m


def with_bias(d: Draw, x: Shape, w: Shape, m: int) -> tuple[Tensor | None, ...]:
    """x, w, and a bias of m elements, None, or nothing."""
    bias = d.maybe(d.tensor((m,)))
    regimes = ("positive",) if x[1] >= MANY else ()
    drawn = d.tensor(x, *regimes), d.tensor(w, *regimes), bias
    return drawn if bias is not None or d.flag() else drawn[:2]


def most(rank: int) -> int:
    """The largest kernel and stride: smaller where there are three axes."""
    return 3 if rank < 3 else 2
