"""Padding by a constant, a reflection, the edge, the other end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from d5test.backends.base import Plan, Table, planned
from d5test.backends.torch.arguments import integers, outwards

rows = Table()

MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
FOLDS: dict[str, Callable[[int, int], int]] = {
    "reflect": lambda i, n: min(i % max(1, 2 * n - 2), -i % max(1, 2 * n - 2)),
    "edge": lambda i, n: min(max(i, 0), n - 1),
    "wrap": lambda i, n: i % n,
}
"""Which element of n stands at place i of a padded axis."""


# the gradient of edge and wrap adds up repeated indices in 16 bits
@rows.native("Pad", arithmetic="S", values=(1, 3))
@planned
def pad(
    op: Any, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None
) -> Plan:
    """Composed if there is a value (`F.pad` takes no tensor), and of indices where `F.pad` has
    no such mode: for leading axes, negative pads, more than one reflection or turn."""
    sides, dims = integers(pads), range(x.ndim) if axes is None else integers(axes)
    begin, end = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(dims):
        begin[axis], end[axis] = sides[i], sides[i + len(dims)]
    if op.mode == "constant":
        return by_constant(outwards(begin, end), value)
    least = min([*begin[2:], *end[2:], 0])
    most = max(max(b, e) - i for b, e, i in zip(begin, end, x.shape, strict=True))
    if not any(begin[:2] + end[:2]) and 3 <= x.ndim <= 5 and least >= 0 > most and x.numel():
        spatial, mode = outwards(begin[2:], end[2:]), MODES[op.mode]
        return lambda x, *_: F.pad(x, spatial, mode=mode)
    fold, taken = FOLDS[op.mode], {}
    for axis, (n, b, e) in enumerate(zip(x.shape, begin, end, strict=True)):
        if b or e:
            places = [fold(i, n) for i in range(-b, n + e)]
            taken[axis] = torch.tensor(places, device=x.device)
    return lambda x, *_: selected(x, taken)


def by_constant(sides: list[int], value: Tensor | None) -> Plan:
    if value is None:
        return lambda x, *_: F.pad(x, sides)

    def call(x: Tensor, pads: Tensor, value: Tensor, axes: Tensor | None = None) -> Tensor:
        inside = F.pad(torch.ones_like(x, dtype=torch.bool), sides)
        return torch.where(inside, F.pad(x, sides), value)

    return call


def selected(x: Tensor, taken: dict[int, Tensor]) -> Tensor:
    """The elements at these places, axis by axis."""
    for axis, places in taken.items():
        x = torch.index_select(x, axis, places)
    return x
