"""Backends whose gradients are wrong on purpose; their forward is right."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy, Reference
from d5test.case import Operator, Tensor
from d5test.reference.operators.broadcasting import unbroadcast
from d5test.strategies import Draw, inputs
from tests.faults.wrong import Arrays, Gradients, Wrong, as_it_lies


class Scaled(Wrong):
    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [dx * dx.dtype.type(1.01) for dx in gradients]


class Negated(Wrong):
    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [-dx for dx in gradients]


class ZeroGradients(Wrong):
    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [np.zeros_like(dx) for dx in gradients]


class NoGradients(Wrong):
    """Says that the inputs have none."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [None for _ in gradients]


class Transposed(Wrong):
    """The right numbers in the wrong order."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [dx.T.reshape(dx.shape) for dx in gradients]


class WrongShape(Wrong):
    """Not summed over the axes along which the input was broadcast."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [np.broadcast_to(dx, np.broadcast_shapes(dx.shape, grads[0].shape)).copy()
                for dx in gradients]  # fmt: skip


class OfNothing(Wrong):
    """Of an empty tensor it has one element."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [dx if dx.size else np.ones((1,) * dx.ndim, dx.dtype) for dx in gradients]


class UpstreamIgnored(Wrong):
    """The gradient of the sum of the outputs: the upstream gradient is taken for ones."""

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        ones = [None if dy is None else np.ones_like(dy) for dy in grads]
        return super().vjp(function, inputs, ones, wanted)


class SecondUseOnly(Wrong):
    """Of a tensor that is passed twice, the last use overwrites the gradient of the first."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [dx / 2 for dx in gradients] if len(inputs) == 1 else gradients


class TwiceForTwoUses(Wrong):
    """Of a tensor that is passed twice, each use adds the sum of both."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [2 * dx for dx in gradients] if len(inputs) == 1 else gradients


class Exchanged(Wrong):
    """Each gradient goes to the other input, if it fits there."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        fits = len({dx.shape for dx in gradients}) == 1
        return gradients[::-1] if fits else gradients


class EveryTiedElement(Wrong):
    """Of equal elements, each gets the whole upstream gradient of their maximum."""

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs, gradients = super().vjp(function, inputs, grads, wanted)
        y, dy = outputs[0], grads[0]
        for k, x in enumerate(inputs[i] for i in wanted):
            if x.ndim <= y.ndim:
                gradients[k] = unbroadcast((x == y) * dy, x.shape)
        return outputs, gradients


class OneElement(Wrong):
    """One element in the middle is 0.1% off."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        for dx in gradients:
            dx.flat[dx.size // 2] *= dx.dtype.type(1.001)
        return gradients


class OneElementInSingle(OneElement):
    """In float32 alone, and where an input has more than 64 elements."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        large = max(dx.size for dx in gradients) > 64
        single = gradients[0].dtype == np.float32 and large
        return super().backward(gradients, inputs, grads) if single else gradients


class WrongInHalf(Wrong):
    """In float16 alone: the gradient's scale was forgotten."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [dx / 2 if dx.dtype == np.float16 else dx for dx in gradients]


class EpsilonAdded(Wrong):
    """In float32 alone, and far below a rounding of ordinary gradients."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [dx + dx.dtype.type(1e-12) if dx.dtype == np.float32 else dx for dx in gradients]


class NanAtZero(Wrong):
    """x^y / x, which is 0 / 0."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        return [np.where(inputs[0] == 0, np.nan, dx).astype(dx.dtype)
                if dx.shape == inputs[0].shape else dx for dx in gradients]  # fmt: skip


class OtherBranchOverflows(Wrong):
    """The branch not taken has a slope of infinity, and the mask is multiplied: 0 inf is NaN."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        with np.errstate(over="ignore"):
            beyond = np.isinf(np.exp(inputs[0]))
        return [np.where(beyond, np.nan, dx).astype(dx.dtype) for dx in gradients]


class NanWithoutVariance(Wrong):
    """Epsilon was forgotten in the gradient, and it shows where nothing else is divided by."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        dx, *others = gradients
        if dx.shape != inputs[0].shape:
            return gradients  # of another input, which alone wants one
        level = np.ptp(inputs[0], axis=-1, keepdims=True) == 0
        return [np.where(level, np.nan, dx).astype(dx.dtype), *others]


class AnotherUpstream(Wrong):
    """Takes the upstream gradient for another one."""

    def taken(self, dy: Any) -> Any:
        raise NotImplementedError

    def vjp(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        others = [None if dy is None else self.taken(dy) for dy in grads]
        return super().vjp(function, inputs, others, wanted)


class UpstreamLayoutBlind(AnotherUpstream):
    """Reads what lies in the memory of the upstream gradient, in the order in which it lies."""

    def taken(self, dy: Any) -> Any:
        return as_it_lies(dy)


class ExpandedReadOnce(AnotherUpstream):
    """Of an upstream gradient with a stride of 0 only what is stored is added."""

    def taken(self, dy: Any) -> Any:
        if dy.size < 2 or dy.strides[0] != 0:
            return dy
        once = np.zeros_like(dy, order="C")
        once[0] = dy[0]
        return once


class UpstreamNanSwallowed(AnotherUpstream):
    def taken(self, dy: Any) -> Any:
        return np.where(np.isnan(dy), 0, dy).astype(dy.dtype)


class UpstreamNanSpread(Wrong):
    """Gradients are multiplied by a mask of the whole upstream gradient, and NaN by 0 is NaN."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        poison = sum(0 * dy.astype(np.float64).sum() for dy in grads if dy is not None)
        return [(dx + poison).astype(dx.dtype) for dx in gradients]


class Cube(Operator):
    """A stranger's operator, y = x^3, which brings no `backward`."""

    domain = "stranger"

    def forward(self, x: Any) -> Any:
        return x * x * x


@inputs(Cube)
def cube_inputs(d: Draw, op: Cube) -> tuple[Tensor | None, ...]:
    """Any tensor."""
    return (d.tensor(d.sides(2, empty=True), "normal", "nonzero"),)


class Cubes(Numpy):
    """The stranger's framework, which differentiates its own operator."""

    rows: ClassVar[Mapping[str, Row]] = {"Cube": Row(Reference(Cube)), "Mul": Numpy.rows["Mul"]}
    exponent = 3

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[Arrays, Gradients]:
        (x,), (dy,) = inputs, grads
        return function(x), [self.exponent * dy * x * x]


class WrongSlope(Cubes):
    """Takes the derivative of x^3 for 2 x^2."""

    exponent = 2


class LostAlone(Wrong):
    """The gradient of an input is zero where no other one wants one."""

    def backward(self, gradients: Gradients, inputs: Arrays, grads: Arrays) -> Gradients:
        if len(gradients) == len(inputs) or len(gradients) > 1:
            return gradients
        return [np.zeros_like(dx) for dx in gradients]


class SpentGraph(Wrong):
    """The first backward pass writes over what the graph has kept for a second one."""

    def vjp_again(self, function: Any, inputs: Any, grads: Any, wanted: Any) -> Any:
        outputs, gradients = super().vjp(function, inputs, grads, wanted)
        return outputs, [dx * dx.dtype.type(0.5) for dx in gradients]
