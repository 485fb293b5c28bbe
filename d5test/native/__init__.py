"""Operators in one C++ file, for every framework.

    op = d5test.native.compile("ipow.cpp")      # and pytest ... --native=ipow.cpp

`include/d5test/operator.h` is what an author includes; `compiler` makes a library of the file,
`library` calls it on NumPy arrays, `reference` and `drawing` make it one of d5test's operators,
and `bridges` have it in the rows of the backends. Importing this imports nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d5test.native.compiler import CompileError
    from d5test.native.custom import CustomPythonOp
    from d5test.native.operators import compile  # noqa: A004 (what it does)

_HOMES = {
    "CompileError": "d5test.native.compiler",
    "CustomPythonOp": "d5test.native.custom",
    "compile": "d5test.native.operators",
}

__all__ = ["CompileError", "CustomPythonOp", "compile"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'd5test.native' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
