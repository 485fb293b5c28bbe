"""The processor: its name, and what libraries and compilers choose their code by."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

EXTENSIONS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "AVX512_CORE": ("avx512f", ("AVX512", "AVX10")),
        "AVX512_FP16": ("avx512_fp16", ("FP16", "AMX", "AVX10")),
        "AMX_BF16": ("amx_bf16", ("AMX",)),
    }
)
"""Instructions for which oneDNN has code of its own, with the system's name, and words of the
limits that leave them."""
REPLACED = {"AVX512_CORE": "AMX_BF16"}
"""Code of oneDNN that is not chosen where it has the other."""


def name() -> str:
    """The model's name, where the system knows it; else its architecture."""
    return _listed("model name") or platform.processor() or platform.machine()


def flags() -> list[str]:
    """What Linux lists of an x86 or ARM processor, `amx_bf16`; nothing elsewhere."""
    return _listed("flags", "Features").split()


def _listed(*fields: str) -> str:
    """What Linux says of the first core under the first of `fields` that it lists."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((s.partition(":")[2].strip() for s in lines if s.startswith(fields)), "")


def adds_pairs_in_16_bits() -> bool:
    """Whether products of uint8 and int8 are added in twos that saturate: x86 without VNNI."""
    has = set(flags())
    return "avx2" in has and not has & {"avx512_vnni", "avx_vnni"}


def onednn_extensions() -> list[str]:
    """Those by which it computes here: ONEDNN_MAX_CPU_ISA may take some away."""
    has = flags()
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "ALL")).upper()
    names = [
        name
        for name, (flag, words) in EXTENSIONS.items()
        if flag in has and (limit in ("ALL", "DEFAULT") or any(word in limit for word in words))
    ]
    return [name for name in names if REPLACED.get(name) not in names]
