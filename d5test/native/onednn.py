"""oneDNN as a backend: its primitives in operators of d5test's C++ header.

The sources are `d5test/native/onednn`, for the C++ interface of oneDNN 2: float32 on the CPU. They
need a compiler, `dnnl.hpp` and `libdnnl.so` (Debian: `apt install libdnnl-dev`). An operator or a
setting that oneDNN does not have is unsupported.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from d5test.backends.base import Row, Unsupported
from d5test.native.backend import ROOT, Kernels, Native

REMEDY = "install oneDNN 2, Debian: apt install libdnnl-dev"
FIRST: Mapping[str, int] = MappingProxyType({"MaxPool": 1, "LayerNormalization": 1})
"""How many outputs there are: oneDNN counts a maximum's place within its window, and has variances
where ONNX has inverse deviations."""

EXPONENTIALS = ("Softmax", "LogSoftmax")
"""Whose generated code makes zeros of exponentials below the smallest normal number."""


INSTRUCTIONS: Mapping[int, str] = MappingProxyType({0x27: "AVX512", 0x7: "AVX2", 0x3: "AVX"})
"""Sets of vector instructions by the bits of dnnl_cpu_isa_t that each has, the largest first."""


class Version(ctypes.Structure):
    """The beginning of dnnl_version_t."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


def version() -> str:
    """The library's. Raises `Unsupported` where there is none, or another than is supported."""
    try:
        library = ctypes.CDLL("libdnnl.so")
    except OSError:
        raise Unsupported(f"there is no libdnnl.so: {REMEDY}") from None
    library.dnnl_version.restype = ctypes.POINTER(Version)
    installed = library.dnnl_version().contents
    if installed.major != 2:
        raise Unsupported(f"libdnnl.so is oneDNN {installed.major}.{installed.minor}: {REMEDY}")
    return f"{installed.major}.{installed.minor}.{installed.patch}"


class OneDnn(Native):
    """oneDNN's primitives on NumPy arrays, differentiated by its own backward primitives."""

    framework = "onednn"
    kernels = Kernels(ROOT / "native" / "onednn", libraries=("-ldnnl",))
    rows: ClassVar[Mapping[str, Row]] = {
        name: replace(
            row, dtypes=("float32",), outputs=FIRST.get(name), flushes=name in EXPONENTIALS
        )
        for name, row in kernels.rows().items()
    }

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._version = version()

    @property
    def version(self) -> str:
        """The library's: `2.6.3`."""
        return self._version

    def describe_device(self) -> str:
        """With the instructions that its generated code may use."""
        bits = ctypes.CDLL("libdnnl.so").dnnl_get_effective_cpu_isa()
        used = (name for isa, name in INSTRUCTIONS.items() if bits & isa == isa)
        return f"{self.device} ({next(used, 'SSE')})"
