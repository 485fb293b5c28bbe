"""Other formulas than ONNX's, as frameworks are known to compute them.

Each is the operator with another forward, or backward. Run on bars it says how far such a
computation may be from its own exact value, whatever the data: that is the error model of an
algorithm. Some are other functions than ONNX's, which a framework is known to compute instead: a
result that is neither is a fault of its own. And some are what a framework documents: a contract.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod, sqrt
from typing import Any

import numpy as np
from scipy.special import erf, expit

from d5test.case import Operator
from d5test.reference.operators import (
    attention,
    elementwise,
    indexing,
    linear,
    normalisation,
    reductions,
    signal,
    types,
)
from d5test.reference.operators.quantisation import ConvInteger, QLinearConv
from d5test.reference.operators.recurrent import GRU, LSTM
from d5test.reference.operators.windows import (
    AveragePool,
    Conv,
    GlobalMaxPool,
    LpPool,
    MaxPool,
    Windows,
)


class RunningSums(normalisation.LRN):
    """LRN whose sum over channels is that of the channel before, plus one square, minus another.

    What a large channel left behind in rounding stays when its window is over; so does a NaN.
    """

    def divisor(self, x):
        c, before = x.shape[1], (self.size - 1) // 2
        around = (before, self.size - 1 - before)
        rest = ((0, 0) for _ in x.shape[2:])
        squares = self.alpha / self.size * np.pad(x * x, [(0, 0), around, *rest])
        divisors = [self.bias + squares[:, : self.size].sum(1)]
        for i in range(c - 1):
            divisors.append(divisors[-1] + squares[:, i + self.size] - squares[:, i])
        return np.stack(divisors, 1)


class BandMatrix(normalisation.LRN):
    """LRN whose sum over channels is a product with a matrix of ones and zeros: 0 NaN is NaN."""

    def divisor(self, x):
        i = np.arange(x.shape[1])
        before = (self.size - 1) // 2
        apart = i[:, None] - i
        band = ((apart >= -before) & (apart < self.size - before)).astype(np.float64)
        squares = np.moveaxis(x * x, 1, -1) @ band
        return self.bias + self.alpha / self.size * np.moveaxis(squares, -1, 1)


class SlopeByDifference(elementwise.Softplus):  # type: ignore[misc]
    """Softplus, y = max(x, 0) + ln(1 + e^-|x|), whose derivative is computed as exp(x - y).

    The rounding of y is an absolute error of the exponent.
    """

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        y = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        return dy * np.exp(x - y)


class ReciprocalOfSquare(elementwise.Reciprocal):  # type: ignore[misc]
    """1 / x, whose derivative is computed as -1 / (x x): the square leaves the range before it."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return -dy * (1 / (x * x))


class SwishProductFirst(elementwise.Swish):
    """Swish whose derivative has dy x multiplied by a slope that vanishes: infinity times zero."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        s = expit(self.alpha * x)
        return dy * s + dy * x * (self.alpha * s * (1 - s))


class HardSwishProductBeforeQuotient(elementwise.HardSwish):  # type: ignore[misc]
    """HardSwish as (x clip(x + 3, 0, 6)) / 6, which overflows where 6 x does."""

    def forward(self, x):
        return x * np.clip(x + 3, 0, 6) / 6


class HardSwishByFloat32Sixth(elementwise.HardSwish):  # type: ignore[misc]
    """HardSwish with the factor 1 / 6 of float32 in any dtype, after the product."""

    def forward(self, x):
        return x * np.clip(x + 3, 0, 6) * float(np.float32(1 / 6))


class CeluTwiceAtZero(elementwise.Celu):
    """Celu as max(x, 0) + alpha (e^(min(x, 0) / alpha) - 1): zero is both functions' own.

    There the gradient is twice as large as it should be.
    """

    def backward(self, grads, inputs, outputs):
        (x,) = inputs
        return super().backward(grads, inputs, outputs) * np.where(x == 0, 2.0, 1.0)


class PReluFlatAtZero(elementwise.PRelu):
    """PRelu as max(x, 0) - slope max(-x, 0): at zero neither has a gradient."""

    def backward(self, grads, inputs, outputs):
        dx, dslope = super().backward(grads, inputs, outputs)
        return dx * np.where(inputs[0] == 0, 0.0, 1.0), dslope


class CumProdFlatAtZero(reductions.CumProd):
    """CumProd whose gradient is the sum of y dy from each element on, over x: 0 where x is."""

    def backward(self, grads, inputs, outputs):
        dx, axis = super().backward(grads, inputs, outputs)
        return np.where(inputs[0] == 0, 0.0, dx), axis


class GeluProductBeforeQuotient(elementwise.Gelu):
    """Gelu as (x (1 + erf(x / sqrt(2)))) / 2, which overflows where 2 x does; of infinity NaN."""

    def forward(self, x):
        return np.where(np.abs(x) == np.inf, np.nan, x * (1 + erf(x / sqrt(2))) / 2)


@dataclass(frozen=True, kw_only=True, repr=False)
class LowestScores(attention.Attention):
    """Attention in whose scores what is masked is the lowest number, not negative infinity."""

    largest: float

    def forward(self, *inputs):
        y, key, value, scores = super().forward(*inputs)
        return y, key, value, np.where(scores == -np.inf, -self.largest, scores)


@dataclass(frozen=True, kw_only=True, repr=False)
class LargestForNaN:
    """A recurrent layer whose activations take a NaN for the largest number."""

    largest: float

    def gate(self, z):
        return super().gate(np.where(np.isnan(z), self.largest, z))

    def candidate(self, z):
        return super().candidate(np.where(np.isnan(z), self.largest, z))


class UnbiasedRunningVariance(normalisation.BatchNormalization):
    """BatchNormalization whose running variance is of the sample: divided by its size less 1."""

    def forward(self, x, scale, b, input_mean, input_var):
        if not self.training_mode:
            return super().forward(x, scale, b, input_mean, input_var)
        y, mean, _ = super().forward(x, scale, b, input_mean, input_var)
        axes = self.reduced(x.ndim)
        count = prod(x.shape[axis] for axis in axes)
        variance = x.var(axes) * (count / max(count - 1, 1))
        return y, mean, self.momentum * input_var + (1 - self.momentum) * variance


class GemmPlusC(linear.Gemm):
    """Gemm that is c, not beta c, where the product has no terms."""

    def forward(self, a, b, c=None):
        beta = self.beta if a.size or b.size else 1.0
        return linear.Gemm(**{**vars(self), "beta": beta}).forward(a, b, c)


class ShiftFromZero(reductions.ReduceLogSumExp):
    """ReduceLogSumExp whose maximum starts from 0 where the first element is infinite."""

    def reduce(self, x, axes):
        if not x.size:
            return super().reduce(x, axes)
        first = x[tuple(slice(1 if axis in axes else None) for axis in range(x.ndim))]
        m = reductions.largest(x, axes)
        m = np.where(np.isinf(first), np.maximum(m, 0.0), m)
        m = np.where(np.isfinite(m), m, 0.0)
        return m + np.log(np.exp(x - m).sum(axes, keepdims=True))


class FromTheFrontOnly(reductions.Reduction):
    """A reduction that, of an empty tensor, ignores axes counted from the end."""

    def reduced(self, x, axes):
        if x.size or axes is None or not axes.size:
            return super().reduced(x, axes)
        return tuple(int(axis) for axis in axes if axis >= 0)


class EvenShares(reductions.Chosen):
    """ReduceMax or ReduceMin whose equal elements have equal shares of the gradient.

    A sign has no bar: which elements are equal is not in doubt.
    """

    def gradient(self, dy, x, y, axes):
        equal = ~np.signbit(self.side * x - self.side * y)
        return dy * equal / equal.sum(axes, keepdims=True)


class FirstOfEqual(reductions.Chosen):
    """ReduceMax or ReduceMin along one axis, whose gradient goes to the first of equal ones."""

    def gradient(self, dy, x, y, axes):
        (axis,) = axes
        dx = np.zeros_like(x)
        if x.size:
            first = np.argmax(~np.signbit(self.side * x - self.side * y), axis, keepdims=True)
            np.put_along_axis(dx, first, dy, axis)
        return dx


class LinearAbove2(elementwise.Softplus):  # type: ignore[misc]
    """Softplus that is x itself above 2."""

    def forward(self, x):
        return np.where(x > 2, x, np.log(1 + np.exp(x)))

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return (dy * np.where(x > 2, 1.0, 1 / (1 + np.exp(-x))),)


class IndicesOfPlane(MaxPool):
    """MaxPool whose indices are counted within each channel of each sample."""

    def forward(self, x):
        y, indices = super().forward(x)
        return y, indices % prod(x.shape[2:])


@dataclass(frozen=True, kw_only=True, repr=False)
class SumByCount(reductions.ReduceMean):
    """ReduceMean as a sum divided by its number of terms, both in the dtype: either overflows."""

    largest: float

    def reduce(self, x, axes):
        return x.sum(axes, keepdims=True) / self._count(x, axes)

    def gradient(self, dy, x, y, axes):
        return dy / self._count(x, axes)

    def _count(self, x, axes):
        count = prod(x.shape[axis] for axis in axes)
        return float(count) if count <= self.largest else np.inf


class SoftmaxNaNAlone(reductions.Softmax):
    """Softmax that is NaN where its input is, and 0 elsewhere in a row that has a NaN."""

    def forward(self, x):
        spoiled = np.isnan(x).any(self.axis, keepdims=True) & ~np.isnan(x)
        y = super().forward(x)
        return np.where(spoiled, np.zeros_like(y), y)


class AttentionNaNAlone(attention.Attention):
    """Attention by that softmax."""

    def _scores(self, q, k, mask, allowed):
        *scores, p = super()._scores(q, k, mask, allowed)
        nan = np.isnan(scores[-1])
        return *scores, np.where(nan.any(-1, keepdims=True) & ~nan, np.zeros_like(p), p)


class ZerosForNaNScores(attention.Attention):
    """Attention that takes a query whose scores are all NaN for one that sees no key."""

    def _scores(self, q, k, mask, allowed):
        *scores, p = super()._scores(q, k, mask, allowed)
        blind = (np.isnan(scores[-1]) | ~allowed).all(-1, keepdims=True)
        return *scores, np.where(blind, np.zeros_like(p), p)


class OpenForBlindQueries(attention.Attention):
    """Attention of which nothing is said where a query sees no key: NaN, which is not judged."""

    def _scores(self, q, k, mask, allowed):
        *scores, p = super()._scores(q, k, mask, allowed)
        blind = ~allowed.any(-1, keepdims=True)
        return *scores, np.where(blind, np.full_like(p, np.nan), p)


class NaNForInfinities(attention.Attention):
    """Attention whose products take an infinity for a NaN, since they split it in two parts."""

    def forward(self, *inputs):
        factors = (0, 1, 2, 4, 5)
        return super().forward(
            *(
                np.where(np.isinf(x), np.full_like(x, np.nan), x)
                if i in factors and x is not None
                else x
                for i, x in enumerate(inputs)
            )
        )


class Cropped(Windows):
    """Windows whose padding may be negative: elements at the edges that none of them sees."""

    @cached_property
    def _inner(self) -> Windows:
        size = tuple(
            n + min(b, 0) + min(e, 0)
            for n, b, e in zip(self.size, self.begin, self.end, strict=True)
        )
        plain = {field.name: getattr(self, field.name) for field in fields(Windows)}
        pads = {name: tuple(max(p, 0) for p in plain[name]) for name in ("begin", "end")}
        return Windows(**{**plain, **pads, "size": size})

    @property
    def _kept(self) -> tuple[Any, ...]:
        pads = zip(self.begin, self.end, strict=True)
        return (..., *(slice(max(0, -b), None if e >= 0 else e) for b, e in pads))

    def view(self, x, fill=0.0):
        if 0 in self.out:
            return np.zeros_like(x, shape=(*x.shape[:2], *self.out, *self.kernel))
        return self._inner.view(x[self._kept], fill)

    def scatter(self, windows):
        x = np.zeros_like(windows, shape=(*windows.shape[:2], *self.size))
        if 0 not in self.out:
            x[self._kept] = self._inner.scatter(windows)
        return x

    def counted(self, *, padding):
        return np.ones(self.out) if 0 in self.out else self._inner.counted(padding=padding)


def same_windows(op: Any, x_shape: tuple[int, ...], spared: int = 0) -> Windows:
    """SAME windows for the kernel without its dilations, with pads that are not bounded below.

    Of each axis the padding is (ceil(n / stride) - 1) stride + kernel - n. A dilated kernel gets
    too little, so that there are too few windows. Where the stride exceeds the kernel by two it is
    negative, and windows begin at 1. Quotients are rounded towards zero, as in C. Of a negative
    padding as many elements as are `spared` are not cut off.
    """
    size, kernel = x_shape[2:], op.kernel_shape
    ones = (1,) * len(size)
    strides, dilations = op.strides or ones, op.dilations or ones
    first = op.auto_pad == "SAME_LOWER"
    total = [(-(-n // s) - 1) * s + k - n for n, s, k in zip(size, strides, kernel, strict=True)]
    begin = tuple(int((t + first + spared * (t < 0)) / 2) for t in total)
    end = tuple(t - b for t, b in zip(total, begin, strict=True))
    room = zip(size, total, kernel, dilations, strides, strict=True)
    return Cropped(
        size=size, kernel=kernel, strides=strides, dilations=dilations, begin=begin, end=end,
        out=tuple(max(0, int((n + t - (k - 1) * d - 1) / s) + 1) for n, t, k, d, s in room),
    )  # fmt: skip


class Undilated:
    """A pooling with `same_windows`."""

    def windows(self, x_shape):
        same = self.auto_pad.startswith("SAME")
        return same_windows(self, x_shape) if same else super().windows(x_shape)


class ConvOfUndilated:
    """A convolution with `same_windows`, of which none is cut off at the end."""

    def windows(self, x_shape, w_shape):
        if not self.auto_pad.startswith("SAME"):
            return super().windows(x_shape, w_shape)
        windows = same_windows(self.with_(kernel_shape=w_shape[2:]), x_shape, spared=1)
        return replace(windows, end=tuple(max(0, e) for e in windows.end))


class MaxPoolOfUndilated(Undilated, MaxPool):
    """MaxPool with `same_windows`. A window that covers no element has no maximum: NaN.

    A negative padding at the end makes the windows fewer, and is ignored where they read.
    """

    def windows(self, x_shape):
        windows = super().windows(x_shape)
        return replace(windows, end=tuple(max(0, e) for e in windows.end))

    def forward(self, x):
        y, indices = super().forward(x)
        return np.where(y == -np.inf, np.nan, y), indices


class AveragePoolOfPaddedPositions(AveragePool):
    """AveragePool whose gradient takes a position in x for one in the padded x."""

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        windows = self.windows(x.shape)
        sides = zip(windows.begin, windows.size, windows.end, strict=True)
        none = (0,) * len(windows.size)
        padded = replace(windows, size=tuple(map(sum, sides)), begin=none, end=none)
        dmean = dy / windows.counted(padding=bool(self.count_include_pad))
        dtaps = dmean.reshape(*dy.shape, *(1,) * len(windows.kernel))
        dx = padded.scatter(np.broadcast_to(dtaps, (*dy.shape, *windows.kernel)))
        return dx[(..., *map(slice, windows.size))]


@dataclass(frozen=True, kw_only=True, repr=False)
class LowestMaxima(MaxPool):
    """MaxPool that starts from the lowest number, which is larger than minus infinity."""

    largest: float

    def forward(self, x):
        y, indices = super().forward(x)
        return np.maximum(y, -self.largest), indices


@dataclass(frozen=True, kw_only=True, repr=False)
class LowestOfChannels(GlobalMaxPool):
    """GlobalMaxPool that starts from the lowest number, which is larger than minus infinity."""

    largest: float

    def forward(self, x):
        return np.maximum(super().forward(x), -self.largest)


class MaxPoolOfEach(MaxPool):
    """MaxPool whose gradient goes whole to each element of a window near its maximum."""

    follows_shifts = False
    near = 1e-5

    def backward(self, grads, inputs, outputs):
        (dy, _), (x,), (y, _) = grads, inputs, outputs
        windows = self.windows(x.shape)
        whole = (..., *(np.newaxis,) * len(self.kernel_shape))
        equal = np.abs(windows.view(x, fill=-np.inf) - y[whole]) < self.near
        return windows.scatter(equal * dy[whole])


class Interpolated:
    """The larger or smaller of two, whose tangent is b + (a is taken) * (a - b).

    Of the tangent b that is not taken a rounding error stays; an infinite one makes NaN.
    """

    def linearised(self, *xs):
        y, *rest = xs
        for x in rest:
            y = x + ~type(self).beaten(y, x) * (y - x)
        return y


@dataclass(frozen=True, kw_only=True, repr=False)
class SoftmaxByQuotient(reductions.Softmax):
    """Its gradient is that of the quotient e / s, with the reciprocal of s s in it.

    Where s s overflows, that is zero, and what flows through the sum is lost.
    """

    largest: float

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        e = np.exp(x - x.max(self.axis, keepdims=True))
        s = e.sum(self.axis, keepdims=True)
        reciprocal = np.where(s > np.sqrt(self.largest), np.zeros_like(s), 1 / (s * s))
        return e * (dy / s - (dy * reciprocal * e).sum(self.axis, keepdims=True))


class SeluInDouble(elementwise.Selu):
    """Selu with the constants of the paper (appendix A1), which ONNX rounds to 32 bits."""

    paper = elementwise.Selu(alpha=1.6732632423543772, gamma=1.0507009873554805)

    def forward(self, x):
        return self.paper.forward(x)

    def backward(self, grads, inputs, outputs):
        return self.paper.backward(grads, inputs, outputs)


class HardSigmoidOfSixths(elementwise.HardSigmoid):
    """HardSigmoid as relu6(x + 3) / 6, which has no alpha that is rounded to 32 bits."""

    def forward(self, x):
        return np.clip(x + 3, 0, 6) / 6

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return np.where((x > -3) & (x < 3), dy / 6, 0)


class AnyOfEqual(indexing.Index):
    """The index of an extremum, of equal ones that of any."""

    def chosen(self, x):
        order = np.argsort(-x if isinstance(self, indexing.ArgMax) else x, self.axis)
        return np.take(order, [0], self.axis)


class TakenAwayInShares(indexing.Scatter):
    """A maximum or minimum of what is scattered, whose gradient is first all of the data's.

    Each of n updates of an element takes an nth away: what is left of a replaced one is rounding.
    """

    def backward(self, grads, inputs, outputs):
        (dy,), (data, indices, _) = grads, inputs
        dx, *others = super().backward(grads, inputs, outputs)
        places = self.places(data.shape, indices)
        updates = np.zeros(data.shape)
        np.add.at(updates, places, 1.0)
        taken = indexing.added(dy[places] / updates[places], places, data.shape)
        return dx + (taken - taken), *others


@dataclass(frozen=True, kw_only=True, repr=False)
class ExponentialFirst(elementwise.Unary):
    """A hyperbolic function as half of a sum of exponentials, infinite where one of them is."""

    largest: float

    def forward(self, x):
        y = super().forward(x)
        return np.where(np.abs(x) > np.log(self.largest), np.sign(y) * np.inf, y)


class SingleFirst:
    """A conversion by way of float32, which rounds what has more bits a first time."""

    def converted(self, x, dtype):
        narrow = types.is_real(dtype) and dtype.itemsize < np.dtype(np.float32).itemsize
        if narrow and isinstance(x, np.ndarray | np.generic):
            x = types.nearest(x, np.dtype(np.float32))
        return super().converted(x, dtype)


class LargestFor480:
    """A conversion to float8_e4m3fn without `saturate`: of what rounds to 480, 448 and not NaN."""

    def converted(self, x, dtype):
        y = super().converted(x, dtype)
        if self.saturate or dtype.name != "float8_e4m3fn" or not hasattr(x, "dtype"):
            return y
        real = x.astype(np.float64)
        to_480 = (np.abs(real) >= 480) & (np.abs(real) < 496)
        return np.where(to_480, np.copysign(448, real).astype(dtype), y)


class AsinhByResult:
    """The slope as a function of the result as it is stored, not of x."""

    derivative = staticmethod(lambda x, y: 1 / np.cosh(y))


class AcoshByResult:
    """The slope as a function of the result as it is stored, not of x."""

    derivative = staticmethod(lambda x, y: 1 / np.sinh(y))


class SumOfLogarithms(linear.Det):
    """A determinant as the exponential of the sum of its pivots' logarithms, and their sign."""

    def product(self, pivots):
        return np.sign(pivots).prod(-1) * np.exp(np.log(np.abs(pivots)).sum(-1))


def _mixed(mixin: type, *operators: type[Operator]) -> dict[type[Operator], type[Operator]]:
    """These operators, each with the methods of the mixin, and its documentation."""
    kind, own = dataclass(frozen=True, kw_only=True, repr=False), {"__doc__": mixin.__doc__}
    return {op: kind(type(f"{op.__name__}{mixin.__name__}", (mixin, op), own)) for op in operators}


class LettersInOrderOfAppearance(linear.Einsum):
    """Einsum without an arrow whose output has its letters as they come, not in the alphabet's."""

    def implicit(self, letters):
        return letters


class MirroredAsGiven(signal.DFT):
    """An inverse transform whose half of a spectrum is mirrored as it is given, of any length.

    Of an even length the last element that is given has no mirror image, as is right of the whole
    half alone; more elements are mirrored over those that are there.
    """

    def spectrum(self, x, dft_length, axis):
        """The whole spectrum, (..., n, 2), and its transform."""
        transform, axis = self._transform(x, dft_length, axis)
        x, n = np.moveaxis(x, axis, -2), transform.n
        m = x.shape[-2]
        whole = np.zeros_like(x, shape=(*x.shape[:-2], n, 2))
        whole[..., :m, :] = x[..., :n, :]
        for k in range(1, min(m - (n % 2 == 0), n + 1)):
            whole[..., n - k, 0], whole[..., n - k, 1] = x[..., k, 0], -x[..., k, 1]
        return whole, replace(transform, onesided=False), axis

    def forward(self, x, dft_length=None, axis=None):
        if not (self.inverse and self.onesided):
            return super().forward(x, dft_length, axis)
        whole, transform, axis = self.spectrum(x, dft_length, axis)
        return np.moveaxis(transform(whole)[..., :1], -2, axis)

    def normwise(self, x, dft_length=None, axis=None):
        if not (self.inverse and self.onesided):
            return super().normwise(x, dft_length, axis)
        whole, transform, axis = self.spectrum(x, dft_length, axis)
        return (np.moveaxis(transform.normwise(whole), -2, axis),)


class ReciprocalInSingle(MirroredAsGiven):
    """The same, and 1 / n of an inverse transform is rounded to float32."""

    def forward(self, x, dft_length=None, axis=None):
        y = super().forward(x, dft_length, axis)
        n = self._transform(x, dft_length, axis)[0].n
        return y * (n * float(np.float32(1 / n))) if self.inverse else y


class HammingOfHundredths(signal.HammingWindow):
    """The Hamming window with the two digits that Hamming gave."""

    terms = (0.54, 0.46)


class SymmetricOddHann(signal.HannWindow):
    """A periodic window that is the symmetric one where its length is odd."""

    def period(self, size):
        return size - 1 + self.periodic * (1 - int(size) % 2)


class SymmetricOddHamming(SymmetricOddHann, HammingOfHundredths):
    """The same of a Hamming window, of its two digits."""

    terms = HammingOfHundredths.terms


FORMULAS: Mapping[str, Mapping[type[Operator], type[Operator]]] = {
    "running sums": {normalisation.LRN: RunningSums},
    "band matrix": {normalisation.LRN: BandMatrix},
    "slope by difference": {elementwise.Softplus: SlopeByDifference},
    "reciprocal of the square": {elementwise.Reciprocal: ReciprocalOfSquare},
    "product with x first": {elementwise.Swish: SwishProductFirst},
    "product before quotient": {
        elementwise.Gelu: GeluProductBeforeQuotient,
        elementwise.HardSwish: HardSwishProductBeforeQuotient,
    },
    "a sixth of float32": {elementwise.HardSwish: HardSwishByFloat32Sixth},
    "both sides at zero": {elementwise.Celu: CeluTwiceAtZero},
    "nothing at zero": {reductions.CumProd: CumProdFlatAtZero},
    "neither side at zero": {elementwise.PRelu: PReluFlatAtZero},
    "quotient rule": {reductions.Softmax: SoftmaxByQuotient},
    "exponential before half": _mixed(ExponentialFirst, elementwise.Cosh, elementwise.Sinh),
    "interpolated tangents": _mixed(Interpolated, elementwise.Max, elementwise.Min),
    "lowest scores": {attention.Attention: LowestScores},
    "largest for NaN": _mixed(LargestForNaN, GRU, LSTM),
    "unbiased running variance": {normalisation.BatchNormalization: UnbiasedRunningVariance},
    "any of equal": _mixed(AnyOfEqual, indexing.ArgMax, indexing.ArgMin),
    "taken away in shares": _mixed(
        TakenAwayInShares, indexing.ScatterElements, indexing.ScatterND
    ),
    "slope of the rounded result": {
        **_mixed(AsinhByResult, elementwise.Asinh),
        **_mixed(AcoshByResult, elementwise.Acosh),
    },
    "sum of logarithms": {linear.Det: SumOfLogarithms},
    "shift from zero": {reductions.ReduceLogSumExp: ShiftFromZero},
    "beta is 1 of nothing": {linear.Gemm: GemmPlusC},
    "letters in order of appearance": {linear.Einsum: LettersInOrderOfAppearance},
    "axes from the front only": _mixed(
        FromTheFrontOnly,
        reductions.ReduceL1,
        reductions.ReduceL2,
        reductions.ReduceLogSum,
        reductions.ReduceLogSumExp,
        reductions.ReduceMax,
        reductions.ReduceMin,
        reductions.ReduceProd,
        reductions.ReduceSum,
        reductions.ReduceSumSquare,
    ),
    "sum by count": {reductions.ReduceMean: SumByCount},
    "zeros for NaN scores": {attention.Attention: ZerosForNaNScores},
    "open for queries that see no key": {attention.Attention: OpenForBlindQueries},
    "NaN for infinities": {attention.Attention: NaNForInfinities},
    "NaN alone": {
        reductions.Softmax: SoftmaxNaNAlone,
        attention.Attention: AttentionNaNAlone,
    },
    "SAME of the undilated kernel": {
        **_mixed(Undilated, AveragePool, LpPool),
        MaxPool: MaxPoolOfUndilated,
        **_mixed(ConvOfUndilated, Conv, ConvInteger, QLinearConv),
    },
    "positions in the padded input": {AveragePool: AveragePoolOfPaddedPositions},
    "even shares": _mixed(EvenShares, reductions.ReduceMax, reductions.ReduceMin),
    "first of equal": _mixed(FirstOfEqual, reductions.ReduceMax, reductions.ReduceMin),
    "linear above 2": {elementwise.Softplus: LinearAbove2},
    "indices of the plane": {MaxPool: IndicesOfPlane},
    "lowest for minus infinity": {MaxPool: LowestMaxima, GlobalMaxPool: LowestOfChannels},
    "constants in 64 bits": {
        elementwise.Selu: SeluInDouble,
        elementwise.HardSigmoid: HardSigmoidOfSixths,
    },
    "float32 first": _mixed(SingleFirst, types.Cast, types.CastLike),
    "448 for 480": _mixed(LargestFor480, types.Cast, types.CastLike),
    "mirrored as given": {signal.DFT: MirroredAsGiven},
    "1 / n in float32": {signal.DFT: ReciprocalInSingle},
    "0.54 and 0.46": {signal.HammingWindow: HammingOfHundredths},
    "symmetric of odd lengths": {
        signal.HannWindow: SymmetricOddHann,
        signal.HammingWindow: SymmetricOddHamming,
    },
    "whole gradient for all near the maximum": {MaxPool: MaxPoolOfEach},
}
"""What `formula` may name, and the operators that it is of."""


def computed(op: Operator, formula: str, largest: float) -> Operator:
    """The operator as that formula has it, in numbers up to `largest`; itself if there is none."""
    if not formula:
        return op
    other = FORMULAS[formula][type(op)]
    has = {field.name: getattr(op, field.name) for field in fields(op)} | {"largest": largest}
    return other(**{field.name: has[field.name] for field in fields(other)})
