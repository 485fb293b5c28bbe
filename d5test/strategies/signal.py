"""Cases of windows, Fourier transforms and weights of spectra."""

from d5test.case import Tensor
from d5test.dtypes import NUMBERS
from d5test.reference.operators import signal
from d5test.strategies.draw import Draw
from d5test.strategies.registry import choices, inputs

COUNTS_TO = {"bfloat16": 256, "float16": 2048}
"""Up to where a format has all whole numbers: beyond, places in a window cannot be told apart."""
WINDOWS = (signal.BlackmanWindow, signal.HammingWindow, signal.HannWindow)
LONGEST = 128
"""Elements of a transform: of more a bar by norm no longer rejects the next lower precision."""
choices(signal.DFT, inverse=(0, 1), onesided=(0, 1))
choices(signal.STFT, onesided=(1, 0))
choices(*WINDOWS, output_datatype=lambda d: NUMBERS[d.dtype], periodic=(1, 0))
choices(signal.MelWeightMatrix, output_datatype=lambda d: NUMBERS[d.dtype])


@inputs(*WINDOWS)
def window_inputs(d: Draw, op: signal.Window) -> tuple[Tensor]:
    """Even and odd, and none; not one, which is 1 in frameworks where ONNX has 0 or 0 / 0."""
    n = d.choose((d.side(least=2, empty=True), d.integer(2, 99), 255, 256, 1000, 4097))
    return (d.literal(min(n, COUNTS_TO.get(d.dtype, n)), d.choose(("int64", "int32"))),)


@inputs(signal.MelWeightMatrix)
def mel_inputs(d: Draw, op: signal.MelWeightMatrix) -> tuple[Tensor, ...]:
    """Few and many bands, all of the spectrum and a part of it; triangles of a single element.

    Of an odd length half the rate lies above the last element, where ONNX says nothing.
    """
    bands, length = d.choose((2, 3, 5, 13, 40)), d.choose((16, 17, 64, 255, 512))
    rate = d.choose((8000, 16000, 44100))
    low, high = d.choose((0, 20, 125)), d.choose((rate / 2 - length % 2, rate / 4, 3000))
    dtype = d.choose(("int64", "int32"))
    counts = (d.literal(n, dtype) for n in (bands, length, rate))
    return (*counts, d.literal(float(low), d.dtype), d.literal(float(high), d.dtype))


@inputs(signal.DFT)
def dft_inputs(d: Draw, op: signal.DFT) -> tuple[Tensor | None, ...]:
    """Real and complex; cut off and filled up; the axis from either end, or not given."""
    sides = list(d.sides(d.rank(1, 3), least=2))
    axis = d.integer(0, len(sides) - 1)
    sides[axis] = m = min(sides[axis], LONGEST)
    inverse = bool(op.inverse and op.onesided)
    parts = 2 if inverse else 1 if op.onesided else d.choose((1, 2))
    n = 2 * (m - 1) if inverse else m
    length = d.maybe(d.literal(d.choose((n, n + 1, n - 1, n + 3)), d.choose(("int64", "int32"))))
    x = d.tensor((*sides, parts))
    if axis == len(sides) - 1 and d.flag():
        return (x,) if length is None else (x, length)
    return x, length, d.literal(axis - (d.flag() and len(sides) + 1))


@inputs(signal.STFT)
def stft_inputs(d: Draw, op: signal.STFT) -> tuple[Tensor | None, ...]:
    """Real signals, and complex ones of whole spectra; a window, the length, or both."""
    samples, n = d.samples(most=3), min(d.side(least=2), LONGEST)
    step, frames = d.integer(1, 5), d.side(few=True)
    length = n + (frames - 1) * step + d.integer(0, step - 1)
    x = d.tensor((samples, length, 1 if op.onesided else d.choose((1, 2))))
    dtype = d.choose(("int64", "int32"))
    step_, n_ = d.literal(step, dtype), d.literal(n, dtype)
    window = d.tensor((n,), "positive", "uniform")
    return d.choose(((x, step_, window), (x, step_, None, n_), (x, step_, window, n_)))
