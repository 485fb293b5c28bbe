"""d5test's own kernels as a backend: readable C++ (`d5test/native/kernels`) and a compiler.

What a check calls runs between guard zones, what is timed does not (`docs/native.md`). An operator
without a kernel is unsupported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from d5test.backends.base import Row, Unsupported
from d5test.backends.numpy import Numpy
from d5test.native import compiler
from d5test.native.family import Kernels

ROOT = Path(__file__).resolve().parents[1]


class Native(Numpy):
    """Kernels of a folder on NumPy arrays, differentiated by their own backward.

    A subclass has other `kernels`, and `rows = kernels.rows()` with them.
    """

    framework = "d5test"
    kernels: ClassVar[Kernels] = Kernels(ROOT / "native" / "kernels")
    rows: ClassVar[Mapping[str, Row]] = kernels.rows()
    updaters: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        try:
            self._compiler = compiler.version()
        except compiler.CompileError as error:
            raise Unsupported(str(error)) from None

    @property
    def version(self) -> str:
        """d5test's and the compiler's: `0.1.0+gxx.12.2.0`."""
        text = (ROOT / "__init__.py").read_text()
        found = re.search(r'__version__ = "(.+)"', text)
        assert found is not None
        return f"{found[1]}+{self._compiler}"
