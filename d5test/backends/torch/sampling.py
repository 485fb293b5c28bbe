"""Operators that read between the elements of a tensor."""

from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, planned
from d5test.backends.resized import Resized
from d5test.backends.torch.arguments import integers, numbers

rows = Table()
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
CORNERS = "align_corners"


@rows.native("Resize", values=(1, 2, 3))
@planned
def resize(
    op: Any, x: Tensor, roi: Tensor | None = None, scales: Any = None, sizes: Any = None
) -> Plan:
    at = Resized.of(op, x.shape, numbers(scales), numbers(sizes))
    how: dict[str, Any] = {"mode": mode_of(op, at, x.ndim - 2)}
    if op.coordinate_transformation_mode == CORNERS:
        how[CORNERS] = True
    if op.antialias:
        how["antialias"] = True
    how["size" if at.plain else "scale_factor"] = (at.sizes if at.plain else at.scales)[2:]
    call: Plan = partial(F.interpolate, **how)
    return lambda x, *_: call(x)


def mode_of(op: Any, at: Resized, rank: int) -> str:
    """torch's name of what Resize does."""
    if not at.exact:
        raise Unsupported("torch rounds sizes down, and copies along an axis whose size stays")
    if not at.pixels or not 1 <= rank <= 3:
        raise Unsupported("torch.nn.functional.interpolate resizes 1 to 3 axes behind channels")
    coordinate = op.coordinate_transformation_mode
    if op.mode == "nearest":
        if coordinate == "asymmetric" and op.nearest_mode == "floor":
            return "nearest"
        if at.half_pixel and op.nearest_mode == "round_prefer_ceil":
            return "nearest-exact"
        raise Unsupported("torch's nearest is asymmetric floor or half_pixel round_prefer_ceil")
    if not (at.half_pixel or (coordinate == CORNERS and at.plain and not op.antialias)):
        raise Unsupported("torch interpolates by half_pixel or align_corners")
    if op.antialias or op.mode == "cubic":
        same = (
            at.cubic(op, -0.5, outside=True)
            if op.antialias
            else at.cubic(op, -0.75, outside=False)
        )
        if rank != 2 or not same:
            raise Unsupported("torch has cubic and antialiased weights of its own, of images")
    return LINEAR[rank] if op.mode == "linear" else "bicubic"


MODES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


@rows.native("GridSample")
@planned
def grid_sample(op: Any, x: Tensor, grid: Tensor) -> Plan:
    if x.ndim not in (4, 5) or (x.ndim == 5 and op.mode == "cubic"):
        raise Unsupported("torch.nn.functional.grid_sample has images, and volumes but for cubic")
    mode, padding, aligned = MODES[op.mode], op.padding_mode, bool(op.align_corners)
    return lambda x, grid: F.grid_sample(x, grid, mode, padding, aligned)


@rows.native("AffineGrid", values=(1,))
@planned
def affine_grid(op: Any, theta: Tensor, size: Tensor) -> Plan:
    sides, aligned = [*integers(size)], bool(op.align_corners)
    return lambda theta, size: F.affine_grid(theta, sides, aligned)
