"""Windows of signals, which are symmetric and of the widest dtype; Fourier transforms."""

from functools import partial
from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, Unsupported, planned
from d5test.backends.jax.framework import Array, integers, jnp, lax

rows = Table()
WIDEST: dict[str, Any] = {"gradient": UNDERIVED, "values": (0,), "dtypes": ("float64",)}


def window(function: Any, op: Any, size: Array) -> Plan:
    """By a function of the length alone."""
    (n,) = integers(size)
    if op.periodic:
        raise Unsupported("jax.numpy has symmetric windows")
    return lambda size: function(n)


rows.native("BlackmanWindow", **WIDEST)(planned(partial(window, jnp.blackman)))
rows.native(
    "HammingWindow", contract="0.54 and 0.46", **WIDEST,
    source="https://docs.jax.dev/en/latest/_autosummary/jax.numpy.hamming.html",
)(planned(partial(window, jnp.hamming)))  # fmt: skip
rows.native("HannWindow", **WIDEST)(planned(partial(window, jnp.hanning)))


TRANSFORMS: dict[tuple[int, int], Any] = {
    (0, 0): jnp.fft.fft, (0, 1): jnp.fft.rfft, (1, 0): jnp.fft.ifft, (1, 1): jnp.fft.irfft,
}  # fmt: skip


@rows.native("DFT", gradient=UNDERIVED, values=(1, 2), dtypes=("float64", "float32"))
@planned
def dft(op: Any, x: Array, length: Array | None = None, axis: Array | None = None) -> Plan:
    n = None if length is None else integers(length)[0]
    along = (-2 if axis is None else integers(axis)[0]) % x.ndim
    transform = TRANSFORMS[op.inverse, op.onesided]

    def call(x: Array, *_: Any) -> Array:
        z = x[..., 0] if x.shape[-1] == 1 else lax.complex(*jnp.moveaxis(x, -1, 0))
        y = transform(z, n, along)
        return y[..., None] if y.dtype == x.dtype else jnp.stack((y.real, y.imag), -1)

    return call
