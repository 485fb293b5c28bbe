"""Backends whose elementary functions are wrong where nobody draws."""

from typing import Any

import numpy as np

from tests.faults.wrong import Arrays, Gradients, Honest, Wrong


class OneOfAll(Wrong):
    """One of the 65,536 numbers of float16 is 1% off."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        (x,), (y,) = inputs, honest(*inputs)
        if x.dtype != np.float16:
            return (y,)
        return (np.where(x == np.float16(0.4375), y * np.float16(1.01), y),)


class FlushedEarly(Wrong):
    """Zero where the result nears the smallest numbers of float32: a cheap check of the range."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        (x,), (y,) = inputs, honest(*inputs)
        if x.dtype != np.float32:
            return (y,)
        return (np.where(x < -80, y.dtype.type(0), y),)


class BeyondItsDomain(Wrong):
    """Takes the magnitude of a negative argument instead of NaN."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return honest(*(np.abs(x) for x in inputs))


class UnsignedZero(Wrong):
    """The sign of zero is lost, as in a sum that begins with 0."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(y + y.dtype.type(0) for y in honest(*inputs))


class WiderByTwoPercent(Wrong):
    """The standard deviation of a normal sample is 2% off."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        (y,) = honest(*inputs)
        return (y * y.dtype.type(1.02),)


class RowsAlike(Wrong):
    """Each sample of a batch is given the same noise."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        (y,) = honest(*inputs)
        return (np.broadcast_to(y[:1], y.shape).copy(),)


class Unscaled(Wrong):
    """What a Dropout keeps in training is not scaled."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        y, *masks = honest(*inputs)
        if not trains(*inputs):
            return (y, *masks)
        return (np.where(y == 0, y, inputs[0]), *masks)


class AnotherMask(Wrong):
    """The gradient of a Dropout is that of a mask that is drawn again."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        if not trains(*inputs):
            return gradients
        dx, *rest = gradients
        return (np.roll(dx, 1), *rest)


def trains(x: Any, ratio: Any = None, training_mode: Any = None) -> bool:
    """Whether a Dropout draws its mask."""
    return training_mode is not None and training_mode.ndim == 0 and bool(training_mode)
