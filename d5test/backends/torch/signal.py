"""Windows of signals."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import UNDERIVED, Plan, Table, planned
from d5test.backends.torch.arguments import integers
from d5test.dtypes import NAMES

rows = Table()


def window(function: Any) -> Any:
    """A function of the length, whether it is periodic, and the dtype."""

    def plan(op: Any, size: Tensor) -> Plan:
        (n,), dtype = integers(size), getattr(torch, NAMES[op.output_datatype])
        made = partial(function, n, bool(op.periodic), dtype=dtype, device=size.device)
        return lambda size: made()

    return planned(plan)


hamming = partial(torch.hamming_window, alpha=25 / 46, beta=21 / 46)
for _operator, _function in (
    ("BlackmanWindow", torch.blackman_window),
    ("HammingWindow", hamming),
    ("HannWindow", torch.hann_window),
):
    rows.native(_operator, gradient=UNDERIVED, values=(0,))(window(_function))
