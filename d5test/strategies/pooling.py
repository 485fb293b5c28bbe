"""Cases of poolings: windows that hang over the border, and never one that covers no element."""

from __future__ import annotations

from typing import Any

from d5test.case import Tensor
from d5test.reference.operators import pooling as ops
from d5test.strategies.draw import Draw
from d5test.strategies.registry import attributes, inputs
from d5test.strategies.windows import auto_pads, spatial, vector


@attributes(ops.MaxPool)
def max_pool_attributes(d: Draw) -> ops.MaxPool:
    """Windows as `pool` draws them, indices in both orders."""
    return ops.MaxPool(**pool(d), storage_order=d.choose((0, 1)))


@attributes(ops.AveragePool)
def average_pool_attributes(d: Draw) -> ops.AveragePool:
    """Windows as `pool` draws them, with the padding counted and not."""
    return ops.AveragePool(**pool(d), count_include_pad=d.choose((0, 1)))


@inputs(ops.MaxPool)
def max_pool_inputs(d: Draw, op: ops.MaxPool) -> tuple[Tensor]:
    """Values that differ, mostly: a gradient at a tie is the framework's choice."""
    return (pooled(d, op, "normal", "heavy", "uniform", "ties"),)


@inputs(ops.AveragePool)
def average_pool_inputs(d: Draw, op: ops.AveragePool) -> tuple[Tensor]:
    """Sizes of at least one window."""
    return (pooled(d, op),)


@inputs(ops.GlobalAveragePool)
def global_average_pool_inputs(d: Draw, op: ops.GlobalAveragePool) -> tuple[Tensor]:
    """One to three spatial axes."""
    n = d.side(most=4, empty=True)
    return (d.tensor((n, *d.sides(1 + d.integer(1, 3), most=5))),)


def pool(d: Draw) -> dict[str, Any]:
    """The attributes that poolings share. ONNX wants every padding smaller than the kernel."""
    rank = d.integer(1, 3)
    kernel = vector(d, rank, 1, 3)
    auto_pad = d.choose(auto_pads())
    explicit = auto_pad == "NOTSET"
    return {
        "kernel_shape": kernel,
        "auto_pad": auto_pad,
        "ceil_mode": d.choose((0, 1)) if explicit else 0,
        "dilations": d.maybe(vector(d, rank, 1, 2)),
        "pads": d.maybe(tuple(d.integer(0, k - 1) for k in 2 * kernel)) if explicit else None,
        "strides": d.maybe(vector(d, rank, 1, 3)),
    }


def pooled(d: Draw, op: ops.MaxPool | ops.AveragePool, *regimes: str) -> Tensor:
    """The input of a pooling."""
    size = spatial(d, op.kernel_shape, op.dilations, op.pads, op.auto_pad)
    return d.tensor((d.side(most=3, empty=True), d.side(most=4), *size), *regimes)
