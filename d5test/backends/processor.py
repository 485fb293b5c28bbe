"""What the processor has that a library chooses its kernels by."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

EXTENSIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"AVX512_FP16": ("FP16", "AMX", "AVX10"), "AMX_BF16": ("AMX",)}
)
"""Instructions for which oneDNN has code of its own, and words of the limits that leave them."""


def flags() -> list[str]:
    """What Linux lists of an x86 processor, `amx_bf16`; nothing elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    return next((line for line in lines if line.startswith("flags")), "").split()


def onednn_extensions() -> list[str]:
    """Those that the processor has, but for what ONEDNN_MAX_CPU_ISA takes away."""
    has = flags()
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "ALL")).upper()
    return [
        name
        for name, words in EXTENSIONS.items()
        if name.lower() in has
        and (limit in ("ALL", "DEFAULT") or any(word in limit for word in words))
    ]
