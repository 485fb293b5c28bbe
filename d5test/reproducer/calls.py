"""What a reproducer runs: the calls, and what they return. NumPy and Python 3.9 alone.

Copied into reproducers as far as they use it, and called by nobody else. A backend is what
`d5test.backends.base` says; an array travels as the array and its dtype's name, bfloat16 as its
bits in uint16.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from d5test.worker.heap import poison


def array(dtype: str, values: Any) -> tuple[Any, str]:
    """These values in a dtype, and its name; bfloat16 as its bits."""
    if dtype == "bfloat16":
        return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16), dtype
    return np.array(values, dtype), dtype


def unpacked(dtype: str, shape: tuple[int, ...], text: str) -> Any:
    """An array from its bytes, compressed, in base 64."""
    content = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(content, dtype).reshape(shape).copy()


class Call:
    """The inputs of one call, and upstream gradients with the positions that are differentiated.

    An input that is the same tensor as an earlier one has that one's position in `same_as`.
    """

    def __init__(
        self,
        inputs: Any,
        grads: Any = (),
        wanted: Any = (),
        memory: Any = None,
        same_as: Any = None,
    ) -> None:
        self.inputs, self.grads, self.wanted = inputs, grads, wanted
        self.memory = memory or ["contiguous"] * len(inputs)
        self.same_as = same_as or [None] * len(inputs)


class Answer:
    """What a call returned, as arrays and as tensors, and its inputs' tensors."""

    def __init__(
        self, tensors: Any, outputs: Any, kept: Any, gradients: Any, upstream: Any
    ) -> None:
        self.tensors, self.outputs, self.kept = tensors, outputs, kept
        self.gradients, self.upstream = gradients, upstream


class BadResult(Exception):
    """A call returned what no call may return."""


def answers(
    backend: Any, calls: Any, run: Callable[..., Any], place: Any, most: Any = None
) -> list[Answer]:
    """What all calls return: inputs placed by `place`, outputs and gradients by `run`.

    Raises `BadResult` for what is no tensor, and for more than `most` outputs.
    """
    poison()
    kind = type(backend.put(np.zeros(1, np.float32), "float32"))
    found: list[Answer] = []
    for call in calls:
        tensors = place(backend, call, found[-1].tensors if found else None)
        outputs, gradients, upstream = run(call, tensors)
        if most is not None and len(outputs) > most:
            raise BadResult(f"{len(outputs)} outputs, at most {most} are known")
        if upstream and len(gradients) != len(call.wanted):
            raise BadResult(f"{len(gradients)} gradients, want {len(call.wanted)}")
        for y in (*outputs, *(dx for dx in gradients if dx is not None)):
            if not isinstance(y, kind):
                raise BadResult(f"a {type(y).__name__} is no {kind.__name__}")
        backend.wait([t for t in (*outputs, *gradients) if t is not None])
        read = [backend.get(y) for y in outputs]
        slopes = [
            (np.zeros_like(call.inputs[i][0]), call.inputs[i][1])
            if dx is None
            else backend.get(dx)
            for i, dx in zip(call.wanted, gradients, strict=False)
        ]
        found.append(Answer(tensors, read, outputs, slopes, upstream))
    return found


def anew(backend: Any, call: Call, before: Any) -> list[Any]:
    """The inputs of a call on the device, in tensors of their own."""
    tensors: list[Any] = []
    for given, memory, same in zip(call.inputs, call.memory, call.same_as, strict=False):
        if same is not None:
            tensors.append(tensors[same])
        elif given is None:
            tensors.append(None)
        else:
            tensors.append(backend.put(given[0].copy(), given[1], memory))
    return tensors


def rewritten(backend: Any, call: Call, before: Any) -> list[Any]:
    """The inputs of a call, written over those of the call before."""
    if before is None or not backend.mutable:
        return anew(backend, call, before)
    for tensor, given, same in zip(before, call.inputs, call.same_as, strict=False):
        if given is not None and same is None:
            backend.refill(tensor, given[0].copy(), given[1])
    return list(before)


def forward(function: Callable[..., Any]) -> Callable[..., Any]:
    """How a call is made that is not differentiated."""

    def run(call: Call, tensors: Any) -> Any:
        result = function(*tensors)
        return (tuple(result) if isinstance(result, (tuple, list)) else (result,)), (), ()

    return run


def differentiated(backend: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """How a call is made with its gradients. A tensor that is given twice is one variable."""

    def run(call: Call, tensors: Any) -> Any:
        if not call.grads:
            return forward(function)(call, tensors)
        upstream = [None if g is None else backend.put(g[0].copy(), g[1]) for g in call.grads]
        places = [i if same is None else same for i, same in enumerate(call.same_as)]
        distinct = sorted(set(places))
        outputs, gradients = backend.vjp(
            function
            if len(distinct) == len(places)
            else lambda *xs: function(*(xs[distinct.index(place)] for place in places)),
            [tensors[i] for i in distinct],
            upstream,
            [distinct.index(i) for i in call.wanted],
        )
        return outputs, gradients, upstream

    return run
