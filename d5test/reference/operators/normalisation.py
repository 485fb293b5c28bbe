"""Normalisations: zero mean and unit variance over some axes, then a scale and a shift.

The references compute in float64 throughout; `stash_type` says in which dtype a framework
computes its statistics and changes no formula.
"""

import math
from dataclasses import dataclass

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.broadcasting import (
    PerSample,
    along_channels,
    batch_of,
    unbroadcast,
)

__all__ = [
    "LRN", "BatchNormalization", "GroupNormalization", "InstanceNormalization",
    "LayerNormalization", "MeanVarianceNormalization", "RMSNormalization",
]  # fmt: skip

# What ONNX stores: a FLOAT is a float32.
EPSILON = float(np.float32(1e-5))
MOMENTUM = float(np.float32(0.9))
ALPHA = float(np.float32(1e-4))
NOTHING = float(np.float32(1e-9))
"""What MeanVarianceNormalization adds to a deviation."""


def standardise(x, axes, epsilon):
    """(x - mean) / sqrt(variance + epsilon) over `axes`; mean; 1 / sqrt(variance + epsilon)."""
    mean = x.mean(axes, keepdims=True)
    d = x - mean
    rstd = 1 / np.sqrt((d * d).mean(axes, keepdims=True) + epsilon)
    return d * rstd, mean, rstd


def standardise_gradient(dxhat, xhat, rstd, axes):
    """dx through `standardise`. Ioffe and Szegedy, arXiv 1502.03167, section 3, simplified."""
    along_one = dxhat.mean(axes, keepdims=True)
    along_xhat = (dxhat * xhat).mean(axes, keepdims=True)
    return rstd * (dxhat - along_one - xhat * along_xhat)


@dataclass(frozen=True, kw_only=True, repr=False)
class BatchNormalization(PerSample):
    """Each channel normalised over batch and positions. ONNX BatchNormalization-15.

    y = (x - mean) / sqrt(var + epsilon) scale + b. x, y: (n, c, *d); all others: (c,).

    For inference this is folded into x alpha + beta, as frameworks and compilers do: alpha and
    beta are constants then. It is less accurate where x is near a large mean.
    With `training_mode` 1 the mean and the population variance are x's, and the outputs
    running_mean and running_var = momentum * input + (1 - momentum) * x's; no gradient flows
    through these. Ioffe and Szegedy, arXiv 1502.03167, algorithms 1 and 2.
    """

    epsilon: float = EPSILON
    momentum: float = MOMENTUM
    training_mode: int = 0
    since = 15
    stopped_outputs = (1, 2)

    def forward(self, x, scale, b, input_mean, input_var):
        scale, b = along_channels(scale, x.ndim), along_channels(b, x.ndim)
        if not self.training_mode:
            mean, var = along_channels(input_mean, x.ndim), along_channels(input_var, x.ndim)
            alpha = scale / np.sqrt(var + self.epsilon)
            return x * alpha + (b - mean * alpha)
        axes = self.reduced(x.ndim)
        xhat, _, _ = standardise(x, axes, self.epsilon)
        running_mean = self.momentum * input_mean + (1 - self.momentum) * x.mean(axes)
        running_var = self.momentum * input_var + (1 - self.momentum) * x.var(axes)
        return xhat * scale + b, running_mean, running_var

    def backward(self, grads, inputs, outputs):
        dy, (x, scale, _, input_mean, input_var) = grads[0], inputs
        axes = self.reduced(x.ndim)
        dxhat = dy * along_channels(scale, x.ndim)
        if self.training_mode:
            xhat, _, rstd = standardise(x, axes, self.epsilon)
            dx = standardise_gradient(dxhat, xhat, rstd, axes)
            dmean, dvar = np.zeros_like(input_mean), np.zeros_like(input_var)
        else:
            rstd = 1 / np.sqrt(along_channels(input_var, x.ndim) + self.epsilon)
            xhat = (x - along_channels(input_mean, x.ndim)) * rstd
            dx = dxhat * rstd
            dmean = -dx.sum(axes)
            dvar = -0.5 * (dx * xhat * rstd).sum(axes)
        return dx, (dy * xhat).sum(axes), dy.sum(axes), dmean, dvar

    def other_backward(self, grads, inputs):
        """Of x alpha + beta, as it is differentiated automatically."""
        if self.training_mode:
            return None
        dy, (x, scale, _, mean, var) = grads[0], inputs
        axes = self.reduced(x.ndim)
        rstd = 1 / np.sqrt(var + self.epsilon)
        alpha, dbeta = scale * rstd, dy.sum(axes)
        dalpha = (dy * x).sum(axes) - mean * dbeta
        dx = dy * along_channels(alpha, x.ndim)
        dvar = -0.5 * dalpha * scale * rstd * rstd * rstd
        return dx, dalpha * rstd, dbeta, -alpha * dbeta, dvar

    def reduced(self, ndim):
        """All axes but the channels'."""
        return (0, *range(2, ndim))

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        return None if self.training_mode else super().batch(*shapes)


@dataclass(frozen=True, kw_only=True, repr=False)
class FromAxis(Operator):
    """Statistics of each sample over the axes from `axis` on."""

    axis: int = -1
    epsilon: float = EPSILON
    stash_type: int = 1

    def reduced(self, ndim):
        """The axes from `axis` on."""
        return tuple(range(self.axis % ndim, ndim))

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        x = shapes[0]
        return None if x is None or self.axis % len(x) == 0 else batch_of(*shapes)


@dataclass(frozen=True, kw_only=True, repr=False)
class LayerNormalization(FromAxis):
    """Each sample normalised over the axes from `axis` on. ONNX LayerNormalization-17.

    y = (x - mean) / sqrt(var + epsilon) scale + b. x, y: any shape; scale, b: shapes that
    broadcast to x's; mean, inv_std_dev: x's shape with 1 from `axis` on.
    Ba, Kiros and Hinton, arXiv 1607.06450, equation 3.
    """

    since = 17
    stashed_outputs = (1, 2)

    def forward(self, x, scale, b=None):
        xhat, mean, rstd = standardise(x, self.reduced(x.ndim), self.epsilon)
        y = xhat * scale
        return (y if b is None else y + b), mean, rstd

    def backward(self, grads, inputs, outputs):
        (dy, dmean, drstd), (x, scale, *b), (_, mean, rstd) = grads, inputs, outputs
        axes = self.reduced(x.ndim)
        n = math.prod(x.shape[axis] for axis in axes)
        xhat = (x - mean) * rstd
        dx = standardise_gradient(dy * scale, xhat, rstd, axes)
        dx = dx + dmean / n - drstd * rstd * rstd * xhat / n
        db = (None if shift is None else unbroadcast(dy, shift.shape) for shift in b)
        return dx, unbroadcast(dy * xhat, scale.shape), *db

    def batch(self, *shapes: tuple[int, ...] | None) -> Batch | None:
        inputs = super().batch(*shapes)
        return None if inputs is None else Batch(inputs.inputs, (0, 0, 0))


@dataclass(frozen=True, kw_only=True, repr=False)
class GroupNormalization(PerSample):
    """Each sample normalised over groups of channels. ONNX GroupNormalization-21.

    y = (x - mean) / sqrt(var + epsilon) scale + bias. x, y: (n, c, *d); scale, bias: (c,);
    `num_groups` divides c. Wu and He, arXiv 1803.08494, equations 1 and 2.

    The variance is mean(x^2) - mean(x)^2, as ONNX's function body has it and as runtimes compute
    it that have no kernel of their own: it cancels where the mean is large.
    """

    num_groups: int
    epsilon: float = EPSILON
    stash_type: int = 1
    since = 21

    def forward(self, x, scale, bias):
        xhat = self.standardised(x)[0].reshape(x.shape)
        return xhat * along_channels(scale, x.ndim) + along_channels(bias, x.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, scale, _) = grads, inputs
        xhat, rstd = self.standardised(x)
        dxhat = self.grouped(dy * along_channels(scale, x.ndim))
        dx = standardise_gradient(dxhat, xhat, rstd, 2).reshape(x.shape)
        axes = (0, *range(2, x.ndim))
        return dx, (dy * xhat.reshape(x.shape)).sum(axes), dy.sum(axes)

    def standardised(self, x):
        """(x - mean) / sqrt(variance + epsilon) and 1 / sqrt(variance + epsilon), by groups."""
        groups = self.grouped(x)
        mean = groups.mean(2, keepdims=True)
        rstd = 1 / np.sqrt(self.variance(groups, mean) + self.epsilon)
        return (groups - mean) * rstd, rstd

    def variance(self, groups, mean):
        """That of each group, (n, groups, 1)."""
        return (groups * groups).mean(2, keepdims=True) - mean * mean

    def grouped(self, x):
        """x as (n, groups, elements of a group)."""
        groups = self.num_groups
        return x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)


@dataclass(frozen=True, kw_only=True, repr=False)
class InstanceNormalization(PerSample):
    """Each channel of each sample normalised by itself. ONNX InstanceNormalization-22.

    y = (x - mean) / sqrt(var + epsilon) scale + b. x, y: (n, c, *d); scale, b: (c,).
    Ulyanov, Vedaldi and Lempitsky, arXiv 1607.08022, equation 4.
    """

    epsilon: float = EPSILON
    since = 22

    def forward(self, x, scale, b):
        xhat, _, _ = standardise(x, self.reduced(x.ndim), self.epsilon)
        return xhat * along_channels(scale, x.ndim) + along_channels(b, x.ndim)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, scale, _) = grads, inputs
        xhat, _, rstd = standardise(x, self.reduced(x.ndim), self.epsilon)
        dxhat = dy * along_channels(scale, x.ndim)
        axes = (0, *self.reduced(x.ndim))
        dx = standardise_gradient(dxhat, xhat, rstd, self.reduced(x.ndim))
        return dx, (dy * xhat).sum(axes), dy.sum(axes)

    def reduced(self, ndim):
        """The axes of the positions."""
        return tuple(range(2, ndim))


@dataclass(frozen=True, kw_only=True, repr=False)
class RMSNormalization(FromAxis):
    """Each sample divided by its root mean square from `axis` on. ONNX RMSNormalization-23.

    y = x / sqrt(mean of x^2 + epsilon) scale. x, y: any shape; scale: a shape that broadcasts to
    x's. Zhang and Sennrich, arXiv 1910.07467, equation 4.
    """

    since = 23

    def forward(self, x, scale):
        return x / self.root_mean_square(x) * scale

    def backward(self, grads, inputs, outputs):
        (dy,), (x, scale) = grads, inputs
        rms = self.root_mean_square(x)
        xhat = x / rms
        dxhat = dy * scale
        along_xhat = (dxhat * xhat).mean(self.reduced(x.ndim), keepdims=True)
        return (dxhat - xhat * along_xhat) / rms, unbroadcast(dy * xhat, scale.shape)

    def root_mean_square(self, x):
        return np.sqrt((x * x).mean(self.reduced(x.ndim), keepdims=True) + self.epsilon)


@dataclass(frozen=True, kw_only=True, repr=False)
class MeanVarianceNormalization(Operator):
    """y = (x - mean) / (deviation + 1e-9) over `axes`. ONNX MeanVarianceNormalization-13.

    x, y: any shape that has the axes. ONNX's function body computes the variance as the mean of
    x^2 less the square of the mean, which cancels; its text, which is followed here, does not.
    """

    axes: tuple[int, ...] = (0, 2, 3)
    since = 13

    def centred(self, x):
        """x - mean, and the deviation."""
        d = x - x.mean(self.axes, keepdims=True)
        return d, np.sqrt((d * d).mean(self.axes, keepdims=True))

    def forward(self, x):
        d, deviation = self.centred(x)
        return d / (deviation + NOTHING)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        d, deviation = self.centred(x)
        rstd = 1 / (deviation + NOTHING)
        along_y = (dy * (d * rstd)).mean(self.axes, keepdims=True)
        return rstd * (dy - dy.mean(self.axes, keepdims=True) - d / deviation * along_y)


@dataclass(frozen=True, kw_only=True, repr=False)
class LRN(PerSample):
    """Each element divided by the squares of its neighbours in other channels. ONNX LRN-13.

    y = x / (bias + alpha / size s)^beta with s the sum of x^2 over `size` channels, of which
    floor((size - 1) / 2) come before. x, y: (n, c, *d).
    Krizhevsky, Sutskever and Hinton, NIPS 2012, section 3.3.
    """

    size: int
    alpha: float = ALPHA
    beta: float = 0.75
    bias: float = 1.0
    since = 13

    def forward(self, x):
        return x / self.divisor(x) ** self.beta

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        divisor, before = self.divisor(x), (self.size - 1) // 2
        # in the order whose products are smallest: in 16 bits they lose the most digits
        through = dy * divisor ** -(self.beta + 1) * x
        through = self.alpha / self.size * self.over_channels(through, self.size - 1 - before)
        return dy / divisor**self.beta - 2 * self.beta * x * through

    def divisor(self, x):
        """bias + alpha / size s."""
        return self.bias + self.alpha / self.size * self.over_channels(x * x, (self.size - 1) // 2)

    def over_channels(self, x, before):
        """The sum over `size` channels, `before` of them before each."""
        c, after = x.shape[1], self.size - 1 - before
        padded = np.pad(x, [(0, 0), (before, after), *((0, 0) for _ in x.shape[2:])])
        return sum(padded[:, i : i + c] for i in range(self.size))
