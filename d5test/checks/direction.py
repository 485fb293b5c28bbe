"""A step in a random direction, and what a gradient or an output is along one."""

from __future__ import annotations

from typing import Any

import numpy as np

from d5test.case import Arrays, Tensor
from d5test.checks.check import Inquiry
from d5test.outcome.fault import Evidence


def moved(inquiry: Inquiry, positions: tuple[int, ...], step: float) -> Arrays:
    """The inputs, those at `positions` moved by `step` times a direction of the case's own."""
    case, found = inquiry.case, list(inquiry.arrays)
    for i in positions:
        x: Any = found[i]
        direction = Tensor(x.shape, "float64", ("nonzero",)).array(case.seed, 2000 + i)
        found[i] = np.asarray(x + step * direction)
    for i, tensor in enumerate(case.inputs):
        if tensor is not None and tensor.same_as is not None:
            found[i] = found[tensor.same_as]
    return tuple(found)


def along(grads: Arrays, outputs: Any) -> float:
    """<dy, y>, over all outputs."""
    return sum(
        float(np.sum(dy * y)) for dy, y in zip(grads, outputs, strict=False) if dy is not None
    )


def require_shapes(inquiry: Inquiry, gradients: tuple[Any, ...], feed: Any) -> None:
    """Each gradient has the shape of its input; NumPy would broadcast another one."""
    for i, g in zip(inquiry.wanted, gradients, strict=True):
        x: Any = inquiry.arrays[i]
        shape = x.shape
        if g.shape != shape:
            raise inquiry.subject.fault(
                "shape", f"the gradient of input {i} has the wrong shape",
                Evidence((feed,), "shaped", wanted=inquiry.wanted),
                got=str(g.shape), want=str(shape),
            )  # fmt: skip
