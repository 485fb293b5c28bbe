"""Backends that write where they must not, or return what they returned before."""

from collections.abc import Hashable
from typing import Any

import numpy as np

from tests.faults.wrong import Array, Arrays, Gradients, Honest, Wrong


class Cached(Wrong):
    """Results are kept by `key`; so are the inputs, whose addresses are not used again."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._kept: dict[Hashable, tuple[Arrays, Arrays]] = {}

    def key(self, x: Array) -> Hashable:
        raise NotImplementedError

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        key = tuple(None if x is None else self.key(x) for x in inputs)
        if key not in self._kept:
            self._kept[key] = inputs, honest(*inputs)
        return tuple(y.copy() for y in self._kept[key][1])


class CachedByIdentity(Cached):
    def key(self, x: Array) -> Hashable:
        return id(x)


class CachedByAddress(Cached):
    def key(self, x: Array) -> Hashable:
        return x.ctypes.data, x.shape, x.strides


class CachedByShape(Cached):
    def key(self, x: Array) -> Hashable:
        return x.shape, x.dtype.name


class CachedByFingerprint(Cached):
    """By a sum over the elements, whose order does not show."""

    def key(self, x: Array) -> Hashable:
        return x.shape, x.dtype.name, np.sort(x.ravel().view(f"u{x.itemsize}")).tobytes()


class CachedByEnds(Cached):
    """By the first and the last element."""

    def key(self, x: Array) -> Hashable:
        return x.shape, x.dtype.name, *(x.flat[[0, -1]].tolist() if x.size else ())


class OutputReused(Wrong):
    """One buffer for all outputs of a shape."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._buffers: dict[Hashable, Array] = {}

    def _buffered(self, k: int, y: Array) -> Array:
        buffer = self._buffers.setdefault((k, y.shape, y.dtype), np.empty_like(y))
        buffer[...] = y
        return buffer

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(self._buffered(k, y) for k, y in enumerate(honest(*inputs)))

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs, gradients = super().vjp(function, inputs, grads, wanted)
        return tuple(self._buffered(k, y) for k, y in enumerate(outputs)), gradients


class InputOverwritten(Wrong):
    """Computes in place when the output fits."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        outputs = honest(*inputs)
        if inputs[0].shape == outputs[0].shape and inputs[0].flags.writeable:
            inputs[0][...] = outputs[0]
        return outputs

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs, gradients = super().vjp(function, inputs, grads, wanted)
        return self.forward(lambda *_: outputs, *inputs), gradients


class ViewOverwritten(Wrong):
    """Works in place on what it takes for its own copy; where the input is a view, it is none."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        outputs = honest(*inputs)
        if not inputs[0].flags.owndata and inputs[0].flags.writeable:
            inputs[0][...] = outputs[0]
        return outputs


class ViewOfUpstreamOverwritten(Wrong):
    """The same, of the upstream gradient."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        for dy in grads:
            if dy is not None and not dy.flags.owndata and dy.flags.writeable:
                dy *= 2
        return gradients


class UpstreamOverwritten(Wrong):
    """Scales the upstream gradient in place."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        for dy in grads:
            if dy is not None:
                dy *= 2
        return gradients
