"""Windows of signals, and weights of spectra. ONNX's schemas call them not differentiable."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from d5test.case import Operator, dtype_of
from d5test.dtypes import NAMES

__all__ = ["BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"]


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
