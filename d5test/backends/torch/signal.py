"""Windows of signals, and Fourier transforms."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import UNDERIVED, Plan, Table, planned
from d5test.backends.torch.arguments import integers
from d5test.dtypes import NAMES

rows = Table()


def window(function: Any, op: Any, size: Tensor) -> Plan:
    """By a function of the length, whether it is periodic, and the dtype."""
    (n,), dtype = integers(size), getattr(torch, NAMES[op.output_datatype])
    made = partial(function, n, bool(op.periodic), dtype=dtype, device=size.device)
    return lambda size: made()


hamming = partial(torch.hamming_window, alpha=25 / 46, beta=21 / 46)
for _operator, _function in (
    ("BlackmanWindow", torch.blackman_window),
    ("HammingWindow", hamming),
    ("HannWindow", torch.hann_window),
):
    rows.native(_operator, gradient=UNDERIVED, values=(0,))(planned(partial(window, _function)))


SPECTRAL: dict[str, Any] = {"gradient": UNDERIVED, "dtypes": ("float64", "float32")}
TRANSFORMS: dict[tuple[int, int], Any] = {
    (0, 0): torch.fft.fft, (0, 1): torch.fft.rfft, (1, 0): torch.fft.ifft, (1, 1): torch.fft.irfft,
}  # fmt: skip


def numbers(x: Tensor) -> Tensor:
    """The real or complex numbers that stand along the last axis."""
    return x[..., 0] if x.shape[-1] == 1 else torch.complex(*x.unbind(-1))


@rows.native("DFT", values=(1, 2), **SPECTRAL)
@planned
def dft(op: Any, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None) -> Plan:
    n = None if length is None else integers(length)[0]
    along = (-2 if axis is None else integers(axis)[0]) % x.ndim
    transform = TRANSFORMS[op.inverse, op.onesided]
    if op.inverse and op.onesided:
        return lambda x, *_: transform(numbers(x), n, along)[..., None]
    return lambda x, *_: torch.view_as_real(transform(numbers(x), n, along).resolve_conj())


def stft(
    transform: Any, op: Any, x: Tensor, step: Tensor, window: Tensor | None = None, *length: Tensor
) -> Plan:
    """By a function like `torch.stft`."""
    n = integers(length[0])[0] if window is None or length else window.shape[0]
    made = partial(
        transform, n_fft=n, hop_length=integers(step)[0], center=False,
        onesided=bool(op.onesided), return_complex=True,
    )  # fmt: skip

    def call(x: Tensor, step: Tensor, window: Tensor | None = None, *length: Tensor) -> Tensor:
        return torch.view_as_real(made(numbers(x), window=window).transpose(1, 2))

    return call


rows.native("STFT", values=(1, 3), **SPECTRAL)(planned(partial(stft, torch.stft)))
