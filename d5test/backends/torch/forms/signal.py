"""Forms of windows, of which torch.signal says symmetric for not periodic, and of transforms."""

from functools import partial
from typing import Any

import torch
from torch.signal import windows

from d5test.backends.base import UNDERIVED, Forms, planned
from d5test.backends.torch.signal import SPECTRAL, stft, window

forms = Forms()


def made(function: Any, n: int, periodic: bool, **given: Any) -> torch.Tensor:
    """A window of torch.signal, by the arguments of the older functions."""
    result: torch.Tensor = function(n, sym=not periodic, **given)
    return result


COSINES = partial(windows.general_cosine, a=(0.42, 0.5, 0.08))
FORMS: dict[str, dict[str, Any]] = {
    "BlackmanWindow": {"blackman": windows.blackman, "general_cosine": COSINES},
    "HammingWindow": {"general_hamming": partial(windows.general_hamming, alpha=25 / 46)},
    "HannWindow": {"hann": windows.hann},
}
for _operator, _functions in FORMS.items():
    for _name, _function in _functions.items():
        forms.add(
            _operator, f"torch.signal.windows.{_name}", gradient=UNDERIVED, values=(0,),
            dtypes=("float64", "float32"),
        )(planned(partial(window, partial(made, _function))))  # fmt: skip
forms.add("STFT", "torch.Tensor.stft", values=(1, 3), **SPECTRAL)(
    planned(partial(stft, torch.Tensor.stft))
)
