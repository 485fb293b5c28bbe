"""Where the samples of operands lie, how operands broadcast, and the adjoint of broadcasting."""

from typing import Any

from d5test.case import Batch, Operator


class Broadcasting(Operator):
    """An operator whose inputs broadcast, and whose output has the shape that they then have."""

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return batch_of(*shapes)


class PerSample(Operator):
    """An operator of samples along the first axis of its first input, which share the others."""

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return Batch((0, *(None for _ in shapes[1:])), (0,))


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


def along_channels(parameter: Any, rank: int) -> Any:
    """A parameter (c,) as it broadcasts to (n, c, *d) of `rank` axes."""
    return parameter.reshape(-1, *(1,) * (rank - 2))


def unbroadcast(dy: Any, shape: tuple[int, ...]) -> Any:
    """The sum of `dy` over the axes along which an array of `shape` was broadcast."""
    added = dy.ndim - len(shape)
    repeated = tuple(
        axis + added for axis, n in enumerate(shape) if n == 1 and dy.shape[axis + added] != 1
    )
    axes = (*range(added), *repeated)
    return dy.sum(axes, keepdims=True).reshape(shape) if axes else dy


def plain(x: Any) -> Any:
    """The numbers of an array, by which nothing is differentiated: they choose places, or rows."""
    while hasattr(x, "value"):
        x = x.value
    return x
