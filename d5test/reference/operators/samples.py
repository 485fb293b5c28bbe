"""Where the independent samples lie in operands that broadcast."""

from __future__ import annotations

from d5test.case import Batch


def batch_of(*shapes: tuple[int, ...] | None) -> Batch | None:
    """The batch along the first axis of what `shapes` broadcast to; one output.

    An input that does not run along that axis is shared by all samples.
    """
    present = [shape for shape in shapes if shape is not None]
    rank = max(map(len, present))
    if rank == 0:
        return None
    widest = {shape[0] for shape in present if len(shape) == rank}
    leading = next(iter(widest - {1}), 1)
    inputs = tuple(
        0 if shape is not None and len(shape) == rank and shape[0] == leading else None
        for shape in shapes
    )
    return Batch(inputs, (0,))
