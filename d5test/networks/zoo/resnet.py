"""Residual networks: He, Zhang, Ren and Sun, arXiv 1512.03385.

Batch normalisation is in training mode, so that its gradient runs through the statistics.
"""

import math

import numpy as np

from d5test.networks.graph import Value
from d5test.networks.network import Network
from d5test.networks.zoo.built import Draft
from d5test.reference.operators.elementwise import Add, Relu
from d5test.reference.operators.movement import Flatten, Pad, Slice
from d5test.reference.operators.normalisation import BatchNormalization
from d5test.reference.operators.windows import Conv, GlobalAveragePool, MaxPool


def resnet18(classes: int = 10, seed: int = 0) -> Network:
    """x (n, 3, h, w), h and w from 33 on, to scores (n, classes); table 1, a projection where
    the size changes."""
    draft = _draft("resnet18", seed)
    h = _convolved(draft, "stem", "x", 3, 64, 7, 2)
    h = draft.add("stem_relu", Relu(), h)
    pool = MaxPool(kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2))
    h = draft.add("stem_pool", pool, h)
    return _finished(draft, h, (64, 128, 256, 512), 2, classes, projected=True)


def resnet44(classes: int = 10, seed: int = 0) -> Network:
    """x (n, 3, 32, 32) to scores (n, classes): section 4.2 with n = 7, zeros for new channels."""
    return cifar(44, classes, seed)


def cifar(depth: int, classes: int = 10, seed: int = 0, channels: int = 3) -> Network:
    """The networks of section 4.2, of 6 n + 2 layers; raises ValueError for another depth."""
    n, rest = divmod(depth - 2, 6)
    if rest or n < 1:
        raise ValueError(f"a CIFAR ResNet has 6 n + 2 layers, not {depth}")
    draft = _draft(f"resnet{depth}", seed, channels)
    h = _convolved(draft, "stem", "x", channels, 16, 3, 1)
    h = draft.add("stem_relu", Relu(), h)
    return _finished(draft, h, (16, 32, 64), n, classes, projected=False)


def _draft(name: str, seed: int, channels: int = 3) -> Draft:
    x, labels = Value("float32", ("n", channels, "h", "w")), Value("int64", ("n",))
    return Draft(name, seed, x=x, labels=labels)


def _block(
    draft: Draft, name: str, x: str, c_in: int, c: int, stride: int, *, projected: bool
) -> str:
    """Two convolutions, and around them the input itself, or what has its new size."""
    relu = Relu()
    h = _convolved(draft, f"{name}_a", x, c_in, c, 3, stride)
    h = draft.add(f"{name}_a_relu", relu, h)
    h = _convolved(draft, f"{name}_b", h, c, c, 3, 1)
    around = x
    if c != c_in and projected:
        around = _convolved(draft, f"{name}_c", x, c_in, c, 1, stride)
    elif c != c_in:
        around = _widened(draft, f"{name}_c", x, c - c_in)
    return draft.add(f"{name}_relu", relu, draft.add(f"{name}_sum", Add(), h, around))


def _convolved(
    draft: Draft, name: str, x: str, c_in: int, c: int, kernel: int, stride: int
) -> str:
    """A convolution, and batch normalisation with scales near 1 and shifts near 0."""
    deviation = math.sqrt(2 / (c_in * kernel * kernel))
    w = draft.normal(f"{name}_conv_w", (c, c_in, kernel, kernel), deviation)
    conv = Conv(kernel_shape=(kernel, kernel), pads=(kernel // 2,) * 4, strides=(stride, stride))
    h = draft.add(f"{name}_conv", conv, x, w)
    scale, shift = draft.scale_and_shift(f"{name}_norm", c)
    mean = draft.array(f"{name}_norm_mean", np.zeros(c))
    var = draft.array(f"{name}_norm_var", np.ones(c))
    op = BatchNormalization(training_mode=1)
    return draft.add_several(f"{name}_norm", op, h, scale, shift, mean, var, outputs=3)[0]


def _widened(draft: Draft, name: str, x: str, more: int) -> str:
    """Every second pixel, and channels of zeros: option A of section 4.1."""
    starts = draft.array(f"{name}_starts", np.array([0, 0]))
    ends = draft.array(f"{name}_ends", np.array([2**31 - 1] * 2))
    axes = draft.array(f"{name}_axes", np.array([2, 3]))
    steps = draft.array(f"{name}_steps", np.array([2, 2]))
    h = draft.add(f"{name}_slice", Slice(), x, starts, ends, axes, steps)
    half = more // 2
    pads = draft.array(f"{name}_pads", np.array([0, half, 0, 0, 0, more - half, 0, 0]))
    return draft.add(f"{name}_pad", Pad(), h, pads)


def _finished(
    draft: Draft, h: str, stages: tuple[int, ...], blocks: int, classes: int, *, projected: bool
) -> Network:
    """The network that ends in stages of blocks, by channels, and a linear layer."""
    c_in = stages[0]
    for stage, c in enumerate(stages, 1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            h = _block(draft, f"stage{stage}_{block}", h, c_in, c, stride, projected=projected)
            c_in = c
    h = draft.add("pool", GlobalAveragePool(), h)
    h = draft.add("flat", Flatten(), h)
    scores = draft.linear("scores", h, c_in, classes)
    return draft.finished(scores, draft.loss(scores, "labels"))
