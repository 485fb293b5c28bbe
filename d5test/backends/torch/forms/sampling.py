"""Forms of what reads between elements: modules, sizes and factors, another layout."""

from typing import Any

import torch
from torch import Tensor, nn

from d5test.backends.base import Forms, Plan, Unsupported, planned
from d5test.backends.resized import Resized
from d5test.backends.torch.arguments import integers, numbers
from d5test.backends.torch.forms.calls import in_channels_last
from d5test.backends.torch.sampling import CORNERS, mode_of, resize

forms = Forms()
RESIZE: dict[str, Any] = {"values": (1, 2, 3)}


@forms.add("Resize", "torch.nn.Upsample", attributes={"antialias": (0,)}, **RESIZE)
@planned
def upsample(op: Any, x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None) -> Plan:
    at = Resized.of(op, x.shape, numbers(scales), numbers(sizes))
    mode, aligned = mode_of(op, at, x.ndim - 2), op.coordinate_transformation_mode == CORNERS
    if mode == "nearest-exact":
        raise Unsupported("torch.nn.Upsample has no nearest-exact")
    size, factors = (at.sizes[2:], None) if at.plain else (None, at.scales[2:])
    module = nn.Upsample(size, factors, mode, aligned or None)
    return lambda x, *_: module(x)


def laid_out(op: Any, x: Tensor, *arguments: Tensor | None) -> Plan:
    call = resize.plan(op, x, *arguments)
    return lambda x, *_: call(in_channels_last(x))


forms.add(
    "Resize", "torch.nn.functional.interpolate in channels_last",
    where={"rank0": {"min": 4, "max": 5}}, **RESIZE,
)(planned(laid_out))  # fmt: skip


@forms.add("AffineGrid", "torch.affine_grid_generator", values=(1,))
@planned
def affine_grid(op: Any, theta: Tensor, size: Tensor) -> Plan:
    sides, aligned = integers(size), bool(op.align_corners)
    return lambda theta, size: torch.affine_grid_generator(theta, sides, aligned)
