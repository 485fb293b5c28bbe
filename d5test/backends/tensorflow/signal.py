"""Windows of signals, and Fourier transforms, which run along the last axis."""

from functools import partial
from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.tensorflow.framework import numbers, tf
from d5test.dtypes import NAMES

rows = Table()


def window(function: Any, op: Any, size: Any) -> Plan:
    """By a function of the length, whether it is periodic, and the dtype."""
    (n,) = numbers(size)
    made = partial(function, n, bool(op.periodic), tf.as_dtype(NAMES[op.output_datatype]))
    return lambda size: made()


rows.native(
    "HammingWindow", gradient=UNDERIVED, values=(0,), contract="0.54 and 0.46",
    source="https://www.tensorflow.org/api_docs/python/tf/signal/hamming_window",
)(planned(partial(window, tf.signal.hamming_window)))  # fmt: skip
rows.native("HannWindow", gradient=UNDERIVED, values=(0,))(
    planned(partial(window, tf.signal.hann_window))
)


SPECTRAL: dict[str, Any] = {"gradient": UNDERIVED, "dtypes": ("float64", "float32")}


def pairs(y: Any) -> Any:
    """Complex numbers as pairs along the last axis."""
    return tf.stack((tf.math.real(y), tf.math.imag(y)), -1)


@rows.native("DFT", values=(1, 2), **SPECTRAL)
@planned
def dft(op: Any, x: Any, length: Any = None, axis: Any = None) -> Plan:
    """Of a whole spectrum the length is that of the axis, so that it is cut off or filled up."""
    along, rank = (-2 if axis is None else numbers(axis)[0]) % x.ndim, x.ndim - 1
    real, m = bool(op.inverse and op.onesided), x.shape[along]
    n = numbers(length)[0] if length is not None else 2 * (m - 1) if real else m
    order = [*(i for i in range(rank) if i != along), along]
    back = [order.index(i) for i in range(rank)]
    pads = [(0, 0)] * (rank - 1) + [(0, max((n // 2 + 1 if real else n) - m, 0))]

    def call(x: Any, *_: Any) -> Any:
        parts = [tf.pad(tf.transpose(part, order), pads) for part in tf.unstack(x, axis=-1)]
        if op.onesided and not real:
            return pairs(tf.transpose(tf.signal.rfft(parts[0], [n]), back))
        re, im = parts if len(parts) > 1 else (parts[0], tf.zeros_like(parts[0]))
        z = tf.complex(re, im)
        if real:
            return tf.transpose(tf.signal.irfft(z, [n]), back)[..., None]
        transform = tf.signal.ifft if op.inverse else tf.signal.fft
        return pairs(tf.transpose(transform(z[..., :n]), back))

    return call


@rows.native("STFT", values=(1, 3), **SPECTRAL)
@planned
def stft(op: Any, x: Any, step: Any, window: Any = None, *length: Any) -> Plan:
    if not op.onesided:
        raise Unsupported("tf.signal.stft has half of a spectrum")
    n = numbers(length[0])[0] if length else window.shape[0]
    (hop,) = numbers(step)

    def call(x: Any, step: Any, window: Any = None, *length: Any) -> Any:
        shape = None if window is None else lambda size, dtype: window
        return pairs(tf.signal.stft(x[..., 0], n, hop, n, shape))

    return call
