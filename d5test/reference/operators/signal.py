"""Windows of signals, Fourier transforms, weights of spectra. None is differentiable in ONNX.

Complex numbers are pairs along the last axis; real ones have a single element there.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import cosdg, sindg

from d5test.case import Batch, Operator, dtype_of
from d5test.dtypes import NAMES

__all__ = [
    "DFT", "STFT", "BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class Window(Operator):
    """y[i] = a0 - a1 cos(t) + a2 cos(2 t), t = 2 pi i / n; over n - 1 if it is not `periodic`.

    Harris 1978. size: (), the n; y: (n,), of the dtype with ONNX's number `output_datatype`. One
    element that is not periodic is 0 / 0.
    """

    output_datatype: int = 1
    periodic: int = 1
    since = 17
    counted = (0,)
    terms: ClassVar[tuple[float, ...]] = ()
    """The a0, a1 and perhaps a2."""

    def forward(self, size):
        angle = 2 * np.pi / self.period(size) * np.arange(int(size))
        a0, a1, *a2 = self.terms
        y = a0 - a1 * np.cos(angle)
        y = y + a2[0] * np.cos(2 * angle) if a2 else y
        return in_dtype(self.output_datatype, y)

    def period(self, size):
        """After how many elements the window repeats itself."""
        return size if self.periodic else size - 1


class BlackmanWindow(Window):
    """A Blackman window, see `Window`. ONNX BlackmanWindow-17."""

    terms = (0.42, 0.5, 0.08)


class HammingWindow(Window):
    """A Hamming window with a0 = 25 / 46, see `Window`. ONNX HammingWindow-17."""

    terms = (25 / 46, 21 / 46)


class HannWindow(Window):
    """A Hann window, see `Window`. ONNX HannWindow-17."""

    terms = (0.5, 0.5)


PER_BASE = 2595 / math.log(10)
"""By which a mel scale multiplies natural logarithms."""


@dataclass(frozen=True, kw_only=True, repr=False)
class MelWeightMatrix(Operator):
    """Overlapping triangles with the peak 1, equally far apart on the mel scale.
    ONNX MelWeightMatrix-17.

    num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz: ();
    y: (dft_length // 2 + 1, num_mel_bins), of the dtype with ONNX's number `output_datatype`.
    mel(f) = 2595 log10(1 + f / 700). The ends and the peaks of n triangles are the lower edge and
    the first n + 1 of n + 2 equal steps to the upper one, rounded down to an element.
    """

    output_datatype: int = 1
    since = 17
    arguments = (3, 4)

    def forward(self, num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz):
        n = int(num_mel_bins) + 2
        low, high = (PER_BASE * np.log(1 + f / 700) for f in (lower_edge_hertz, upper_edge_hertz))
        mel = low + np.arange(n) * ((high - low) / n)
        hertz = 700 * (np.exp(mel / PER_BASE) - 1)
        places = np.floor((int(dft_length) + 1) * hertz / int(sample_rate))
        left, peak, right = places[:-2], places[1:-1], places[2:]
        j = np.arange(int(dft_length) // 2 + 1).reshape(-1, 1)
        rising = (j - left) / np.maximum(peak - left, 1)
        falling = (right - j) / np.maximum(right - peak, 1)
        beside = np.maximum(np.where(j < peak, rising, falling), 0)
        return in_dtype(self.output_datatype, np.where(j == peak, np.ones_like(beside), beside))


def in_dtype(number, y):
    """Plain numbers in the dtype with ONNX's number."""
    return y.astype(dtype_of(NAMES[number])) if isinstance(y, np.ndarray) else y


@dataclass(frozen=True)
class Transform:
    """y[k] = sum of x[t] e^(-2 pi i t k / n) over t < n; or `inverse`, by e^(+...) and over n.

    x: (..., m, 1 or 2): of fewer than n elements the others are zero, of more the first n count.
    y: (..., n, 2). `onesided`: the first n // 2 + 1 of a real x; of an inverse x has so many, the
    others are their conjugates, and y is real, (..., n, 1).
    """

    n: int
    inverse: bool = False
    onesided: bool = False

    @property
    def real(self):
        """Whether the result is."""
        return self.inverse and self.onesided

    def read(self, x):
        """The elements of x that count."""
        return x[..., : self.n // 2 + 1 if self.real else self.n, :]

    def __call__(self, x):
        x, n = self.read(x), self.n
        m, parts = x.shape[-2:]
        turns = (np.outer(np.arange(m), np.arange(n)) + n // 2) % n - n // 2
        degrees = 360 * turns / n  # of a half turn the sine is 0
        cos, sin = cosdg(degrees), sindg(degrees) * (1 if self.inverse else -1)
        if self.real:
            twice = np.where(np.isin(np.arange(m), (0, n / 2)), 1, 2)[:, None, None, None]
            factors = twice * np.stack((cos, -sin), 1)[..., None]
        else:
            factors = np.stack((np.stack((cos, sin), -1), np.stack((-sin, cos), -1)), 1)
        if self.onesided and not self.inverse:
            factors = factors[:, :, : n // 2 + 1]
        return np.tensordot(x, factors[:, :parts] / (n if self.inverse else 1), 2)

    def normwise(self, x):
        """By how many unit roundoffs an element may be off besides its own terms: (..., 1, 1).

        A fast transform multiplies x[t] by roots of unity on its one way to y[k]. At each prime
        factor p of n a sum of p numbers errs by p - 1, and twice a root and a product with it by
        1 + 2 sqrt(2) (Higham 2002, lemma 3.5), in all by p + 7 relative to the sum of |x|; halves
        of a real transform are put together in one more step of p = 2. Where n is no power of 2
        it may be a convolution of a length M < 4 n (Bluestein 1970): three transforms that err by
        log2(M) (1 + 4 sqrt(2)) by norm (Higham, theorem 24.2), and, by Cauchy and Schwarz, an
        element by |x|_2 sqrt(2 n) times that.
        """
        n, size = self.n, np.sqrt((self.read(x) ** 2).sum(-1)) * (2 if self.real else 1)
        error = size.sum(-1) * (sum(p + 7 for p in prime_factors(n)) + 9)
        if n & (n - 1):
            norm = np.sqrt((size**2).sum(-1))
            error = error + 3 * math.log2(4 * n) * (1 + 4 * math.sqrt(2)) * norm * math.sqrt(2 * n)
        return error[..., None, None] / (n if self.inverse else 1)


def prime_factors(n):
    """The prime factors of n, each as often as it divides it."""
    p = next((p for p in range(2, math.isqrt(n) + 1) if n % p == 0), n)
    return [p, *prime_factors(n // p)] if n > 1 else []


@dataclass(frozen=True, kw_only=True, repr=False)
class DFT(Operator):
    """The discrete Fourier transform along an axis, see `Transform`. ONNX DFT-20.

    x: (..., m, ..., 1 or 2); dft_length: (), the n, which is m if there is none, or 2 (m - 1) of
    an inverse that is `onesided`; axis: (), the last but one if there is none.
    """

    inverse: int = 0
    onesided: int = 0
    since = 20

    def forward(self, x, dft_length=None, axis=None):
        transform, axis = self._transform(x, dft_length, axis)
        return np.moveaxis(transform(np.moveaxis(x, axis, -2)), -2, axis)

    def normwise(self, x, dft_length=None, axis=None):
        transform, axis = self._transform(x, dft_length, axis)
        return (np.moveaxis(transform.normwise(np.moveaxis(x, axis, -2)), -2, axis),)

    def _transform(self, x, dft_length, axis):
        axis = (-2 if axis is None else int(axis)) % x.ndim
        n = 2 * (x.shape[axis] - 1) if self.inverse and self.onesided else x.shape[axis]
        n = n if dft_length is None else int(dft_length)
        return Transform(n, bool(self.inverse), bool(self.onesided)), axis


@dataclass(frozen=True, kw_only=True, repr=False)
class STFT(Operator):
    """The Fourier transforms of frames of a signal, which overlap, times a window. ONNX STFT-17.

    signal: (b, m, 1 or 2); frame_step: (); window: (n,), ones if there is none; frame_length: (),
    the n, that of the window or m if there is none. y: (b, (m - n) // frame_step + 1, k, 2), with
    k = n // 2 + 1 if `onesided`, which is of real signals, else n.
    """

    onesided: int = 1
    since = 17

    def forward(self, signal, frame_step, window=None, frame_length=None):
        frames = self._frames(signal, frame_step, window, frame_length)
        return self._transform(frames)(frames)

    def normwise(self, signal, frame_step, window=None, frame_length=None):
        frames = self._frames(signal, frame_step, window, frame_length)
        return (self._transform(frames).normwise(frames),)

    def batch(self, *shapes):
        return Batch((0, *(None for _ in shapes[1:])), (0,))

    def _transform(self, frames):
        return Transform(frames.shape[2], onesided=bool(self.onesided))

    def _frames(self, signal, frame_step, window, frame_length):
        """The frames times the window, (b, frames, n, 1 or 2)."""
        n = signal.shape[1] if window is None else len(window)
        n = n if frame_length is None else int(frame_length)
        frames = np.lib.stride_tricks.sliding_window_view(signal, n, 1)[:, :: int(frame_step)]
        frames = frames.swapaxes(2, 3)
        return frames if window is None else frames * window[:, None]
