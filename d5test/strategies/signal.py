"""Cases of windows, and of weights of spectra."""

from d5test.case import Tensor
from d5test.dtypes import NUMBERS
from d5test.reference.operators import signal
from d5test.strategies.draw import Draw
from d5test.strategies.registry import choices, inputs

COUNTS_TO = {"bfloat16": 256, "float16": 2048}
"""Up to where a format has all whole numbers: beyond, places in a window cannot be told apart."""
WINDOWS = (signal.BlackmanWindow, signal.HammingWindow, signal.HannWindow)
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
