"""Backends whose forward mode or second derivatives are wrong on purpose; all else is right."""

from typing import Any

import numpy as np

from tests.faults.wrong import Wrong, as_it_lies


def half(x: Any) -> Any:
    return None if x is None else x.astype(np.float16).astype(x.dtype)


class OneFactorMoves(Wrong):
    """The tangent of a product has forgotten the second factor's."""

    def jvp(self, function: Any, inputs: Any, tangents: Any) -> Any:
        still = [t if k == 0 or t is None else np.zeros_like(t) for k, t in enumerate(tangents)]
        return super().jvp(function, inputs, still)


class NothingMoves(Wrong):
    """Says that outputs are constants."""

    def jvp(self, function: Any, inputs: Any, tangents: Any) -> Any:
        outputs, moved = super().jvp(function, inputs, tangents)
        return outputs, [None for _ in moved]


class TangentsInHalf(Wrong):
    """Moves in 11 bits."""

    def jvp(self, function: Any, inputs: Any, tangents: Any) -> Any:
        outputs, moved = super().jvp(function, inputs, tangents)
        return outputs, [half(t) for t in moved]


class BeyondTheKink(Wrong):
    """Where an input is 0, outputs move the other way."""

    def jvp(self, function: Any, inputs: Any, tangents: Any) -> Any:
        outputs, (t,) = super().jvp(function, inputs, tangents)
        return outputs, [np.where(inputs[0] == 0, -tangents[0] / 2, t).astype(t.dtype)]


class OtherOutputs(Wrong):
    """The outputs themselves are others when they move."""

    def jvp(self, function: Any, inputs: Any, tangents: Any) -> Any:
        outputs, moved = super().jvp(function, inputs, tangents)
        return tuple(np.asarray(y * y.dtype.type(1.01)) for y in outputs), moved


class Detached(Wrong):
    """The gradient is a constant."""

    def hvp(self, function: Any, inputs: Any, grads: Any, tangents: Any, wanted: Any) -> Any:
        outputs, slopes = super().hvp(function, inputs, grads, tangents, wanted)
        return outputs, [None for _ in slopes]


class NoMixedTerms(Wrong):
    """Each gradient moves with its own input alone."""

    def hvp(self, function: Any, inputs: Any, grads: Any, tangents: Any, wanted: Any) -> Any:
        slopes = []
        for i in wanted:
            own = [t if k == i else None for k, t in enumerate(tangents)]
            outputs, (slope,) = super().hvp(function, inputs, grads, own, [i])
            slopes.append(slope)
        return outputs, slopes


class SlopesInHalf(Wrong):
    """Gradients move in 11 bits."""

    def hvp(self, function: Any, inputs: Any, grads: Any, tangents: Any, wanted: Any) -> Any:
        outputs, slopes = super().hvp(function, inputs, grads, tangents, wanted)
        return outputs, [half(s) for s in slopes]


class CurvedLines(Wrong):
    """What is linear has a second derivative."""

    def hvp(self, function: Any, inputs: Any, grads: Any, tangents: Any, wanted: Any) -> Any:
        outputs, _ = super().hvp(function, inputs, grads, tangents, wanted)
        return outputs, [tangents[i] for i in wanted]


class TangentsOfMemory(Wrong):
    """Moves as if its inputs were contiguous; its outputs are right."""

    def jvp(self, function: Any, inputs: Any, tangents: Any) -> Any:
        outputs, _ = super().jvp(function, inputs, tangents)
        return outputs, super().jvp(function, [*map(as_it_lies, inputs)], tangents)[1]


class SlopesOfMemory(Wrong):
    """Its gradients move as if its inputs were contiguous."""

    def hvp(self, function: Any, inputs: Any, grads: Any, tangents: Any, wanted: Any) -> Any:
        outputs, _ = super().hvp(function, inputs, grads, tangents, wanted)
        read = [*map(as_it_lies, inputs)]
        return outputs, super().hvp(function, read, grads, tangents, wanted)[1]
