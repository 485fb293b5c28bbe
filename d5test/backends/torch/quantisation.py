"""Quantisation of torch: integers are read out of its quantised tensors."""

from typing import Any

import torch
from torch import Tensor

from d5test.backends.base import Plan, Table, Unsupported, planned

rows = Table()
QUANTISED = {0: torch.quint8, 2: torch.quint8, 3: torch.qint8}


@rows.native("QuantizeLinear", gradient="integers have none", dtypes=("float32",))
@planned
def quantize(op: Any, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Plan:
    """Without a zero point, which torch adds before it rounds."""
    if zero is not None or op.block_size or op.output_dtype not in QUANTISED:
        raise Unsupported("torch quantises to 8 bits, by one scale or by one for each channel")
    dtype, axis = QUANTISED[op.output_dtype], op.axis % x.ndim

    def call(x: Tensor, scale: Tensor) -> Tensor:
        if scale.ndim:
            zeros = torch.zeros_like(scale, dtype=torch.int32)
            return torch.quantize_per_channel(x, scale, zeros, axis, dtype).int_repr()
        return torch.quantize_per_tensor(x, scale, torch.tensor(0), dtype).int_repr()

    return call
