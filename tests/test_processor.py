"""What oneDNN computes by, as rows of known failures name it."""

import pytest

from d5test import processor

XEON = ["avx2", "avx512f", "avx512_fp16", "amx_bf16"]


@pytest.mark.parametrize(
    ("flags", "limit", "expected"),
    [
        (["avx2"], "", []),
        (["avx2", "avx512f"], "", ["AVX512_CORE"]),
        (["avx2", "avx512f"], "AVX2", []),
        (["avx2", "avx512f"], "avx512_core_vnni", ["AVX512_CORE"]),
        (XEON, "", ["AVX512_FP16", "AMX_BF16"]),
        (XEON, "AVX512_CORE_FP16", ["AVX512_CORE", "AVX512_FP16"]),
        (XEON, "AVX512_CORE_BF16", ["AVX512_CORE"]),
    ],
)
def test_extensions(
    flags: list[str], limit: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    monkeypatch.setattr(processor, "flags", lambda: flags)
    assert processor.onednn_extensions() == expected
