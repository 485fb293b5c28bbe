"""A call on samples that are repeated until it is large, and the extremes of what each returns.

The large tensors are made and looked at where the framework lives: they do not travel. NumPy and
the framework only.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.worker.execution import Execution, Placed
from d5test.worker.wire import Bits

PART = 1 << 24
"""Elements of a result that are looked at together."""
Axes = Sequence[int | None]
Extremes = tuple[tuple[int, ...], str, Bits | None, Bits | None]
"""As in `d5test.client.messages`."""


def repeated(
    execution: Execution,
    name: str,
    attributes: dict[str, Any],
    feed: Any,
    along: tuple[Axes, Axes],
    times: int,
    wanted: Sequence[int],
    form: str,
) -> tuple[list[Extremes], list[Extremes | None] | None]:
    """Outputs, or gradients, of an operator on a feed whose samples are repeated so many times.

    along   the axis along which each input and output is repeated; `None`: all samples share it
    wanted  inputs whose gradients are wanted, where there are upstream gradients

    Raises `BadRow`.
    """
    bound = execution.bind(name, attributes, form)
    of_inputs, of_outputs = along
    now = Placed(feed)
    now.tensors = [
        _put(execution, x, a, times) for x, a in zip(now.inputs, of_inputs, strict=True)
    ]
    if now.grads is not None:
        pairs = zip(now.grads, of_outputs, strict=False)
        now.upstream = [_put(execution, dy, axis, times) for dy, axis in pairs]
    execution.compute(bound, now, wanted)
    outputs, slopes = list(now.outputs), list(now.gradients or ())
    now.tensors, now.upstream, now.outputs, now.gradients = [], [], (), None
    if now.grads is None:
        axes = (*of_outputs, *(None for _ in outputs))[: len(outputs)]
        return [_extremes(execution, outputs.pop(0), axis, times) for axis in axes], None
    outputs.clear()
    gradients: list[Extremes | None] = []
    for axis in of_inputs:
        slope = slopes.pop(0)
        gradients.append(None if slope is None else _extremes(execution, slope, axis, times))
    return [], gradients


def _put(execution: Execution, x: Bits | None, axis: int | None, times: int) -> Any:
    """A tensor of so many copies of an array, one behind the other along an axis."""
    if x is None:
        return None
    copies = [times if a == axis else 1 for a in range(x.array.ndim)]
    array = np.tile(x.array, copies) if axis is not None else x.array.copy()
    execution.where = "put"
    return execution.backend.put(array, x.dtype, "contiguous")


def _extremes(execution: Execution, tensor: Any, axis: int | None, times: int) -> Extremes:
    """Of each element of the small result, the lowest and highest of its repetitions.

    None of a shape that is no multiple. A NaN is both. 16-bit numbers are compared in float32.
    """
    array, dtype = execution.get(tensor)
    shape = array.shape
    if axis is None:
        low = high = _decoded(array, dtype)
    elif axis >= array.ndim or shape[axis] % times:
        return shape, dtype, None, None
    else:
        small = shape[axis] // times
        parts = array.reshape(*shape[:axis], times, small, *shape[axis + 1 :])
        step = max(1, PART // max(prod(shape) // times, 1))
        lows, highs = [], []
        for first in range(0, times, step):
            part = _decoded(parts[(slice(None),) * axis + (slice(first, first + step),)], dtype)
            lows.append(np.minimum.reduce(part, axis=axis))
            highs.append(np.maximum.reduce(part, axis=axis))
        low, high = np.minimum.reduce(lows), np.maximum.reduce(highs)
    compared = "float32" if dtype in ("float16", "bfloat16") else dtype
    return shape, dtype, Bits(low, compared), Bits(high, compared)


def _decoded(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Numbers that NumPy compares fast."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if dtype == "float16" else array
