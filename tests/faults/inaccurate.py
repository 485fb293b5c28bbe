"""Backends that are inaccurate and otherwise honest, and some that are inaccurate and wrong."""

from typing import Any

import numpy as np
from scipy.special import erf

from d5test.case import dtype_of
from d5test.numerics.arithmetic import format_of
from d5test.worker.machine import FRESH
from tests.faults import wrong_gradients as gradients
from tests.faults import wrong_memory as memory
from tests.faults.wrong import (
    Arrays,
    BatchDependent,
    Honest,
    LayoutBlind,
    NanInvented,
    NanSwallowed,
    Nondeterministic,
    Wrong,
    floating,
)


class Off(Wrong):
    """Every output, and every gradient, is too large by so many units of roundoff."""

    units = 0.0

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return tuple(self.off(y) for y in super().forward(honest, *inputs))

    def off(self, y: Any) -> Any:
        if not floating(y):
            return y
        larger = y.astype(np.longdouble) * (1 + self.units * format_of(y.dtype.name).u)
        return np.asarray(larger, y.dtype)

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs, found = super().vjp(function, inputs, grads, wanted)
        return tuple(self.off(y) for y in outputs), [self.off(dx) for dx in found]


class SlightlyOff(Off):
    """An exponential function at 1.2 to 1.5 bars, which have 5 ULPs."""

    units = 14.0


class AtItsBar(Off):
    """A softmax now within its bar and now beyond."""

    units = 25.0


class InBfloat16(Wrong):
    """The fast mode of a processor: inputs and outputs are numbers of bfloat16."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        outputs = super().forward(honest, *map(self.rounded, inputs))
        return tuple(map(self.rounded, outputs))

    def rounded(self, x: Any) -> Any:
        if not floating(x):
            return x
        return np.asarray(x.astype(np.float32).astype(dtype_of("bfloat16")).astype(x.dtype))


class ErfByPolynomial(Wrong):
    """Abramowitz and Stegun, 7.1.26, in float64, too: an error of 1.5e-7, and its derivative."""

    a = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    p = 0.3275911

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        if inputs[0].dtype != np.float64:
            return honest(*inputs)
        return (self._value(inputs[0])[0],)

    def _value(self, x: Any) -> tuple[Any, Any]:
        """The approximation and its derivative."""
        size = np.abs(x)
        t = 1 / (1 + self.p * size)
        polynomial, slope = np.zeros_like(x), np.zeros_like(x)
        for a in reversed(self.a):
            slope = slope * t + polynomial
            polynomial = polynomial * t + a
        e = np.exp(-size * size)
        inner = (slope * t + polynomial) * self.p * t * t
        return np.copysign(1 - polynomial * t * e, x), (2 * size * polynomial * t + inner) * e

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        if inputs[0].dtype != np.float64:
            return super().vjp(function, inputs, grads, wanted)
        y, slope = self._value(inputs[0])
        return (y,), [grads[0] * slope]


class InElevenBits(Wrong):
    """Inputs are rounded to 11 bits first, up or down by how the call is made."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return honest(*(self._coarse(x) for x in inputs))

    def _coarse(self, x: Any) -> Any:
        turned = -1 if x.flags.c_contiguous and (x.ndim == 0 or len(x) <= 16) else 1
        digits, exponent = np.frexp(x.astype(np.float64))
        return np.asarray(
            np.ldexp(turned * np.floor(turned * digits * 2**11), exponent - 11), x.dtype
        )

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        return super().vjp(function, [self._coarse(x) for x in inputs], grads, wanted)


class AnotherFunction(Wrong):
    """The error function's complement for the error function, gradient and all."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return ((1 - erf(inputs[0])).astype(inputs[0].dtype),)

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        _, found = super().vjp(function, inputs, grads, wanted)
        return self.forward(function, *inputs), [-dx for dx in found]


class SubnormalAsZero(Wrong):
    """Subnormal numbers are read as zero by some calls, so that the probe does not see it."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        return honest(*(self.flushed(x) if x.size > 64 else x for x in inputs))

    def flushed(self, x: Any) -> Any:
        return np.where(np.abs(x) < format_of(x.dtype.name).smallest_normal, x.dtype.type(0), x)


class ZeroAtMinusInfinity(Wrong):
    """The limit of a function that is x times what vanishes."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        (y,) = honest(*inputs)
        return (np.where(inputs[0] == -np.inf, y.dtype.type(0), y),)


class RightOnce(Wrong):
    """The first call of a process is right, and no other."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def reset(self) -> None:
        self.calls = 0

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        self.calls += 1
        return tuple(y if self.calls == 1 else y + y.dtype.type(1) for y in honest(*inputs))

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs, gradients = super().vjp(function, inputs, grads, wanted)
        return self.forward(lambda: outputs), gradients


class LastUnwritten(Wrong):
    """The last element is what the C heap gave out, as where it is poisoned."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        results = tuple(y.copy() for y in honest(*inputs))
        for y in results:
            y.reshape(-1)[-1:] = np.full(y.itemsize, FRESH, np.uint8).view(y.dtype)
        return results


class OffAndCachedByIdentity(Off, memory.CachedByIdentity):
    units = 200.0


class OffAndCachedByFingerprint(Off, memory.CachedByFingerprint):
    units = 200.0


class OffAndLayoutBlind(Off, LayoutBlind):
    units = 200.0


class OffAndBatchDependent(Off, BatchDependent):
    units = 200.0


class OffAndNanInvented(Off, NanInvented):
    units = 200.0


class OffAndNanSwallowed(Off, NanSwallowed):
    units = 200.0


class OffAndNondeterministic(Off, Nondeterministic):
    units = 200.0


class OffAndWrongGradients(Off, gradients.Scaled):
    units = 200.0
