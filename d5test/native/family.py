"""A folder of kernels as rows of a backend, each file compiled when one of its operators is first
called.

Requirements: what rows there are is known without a compiler, from the registrations
`D5TEST_OPERATOR(Name)` in the files. A file is compiled once in each process (see
`d5test.native.compiler` for what is kept between them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from d5test.backends.base import Plan, Row
from d5test.native import compiler
from d5test.native.bridges import Guarded
from d5test.native.bridges.numpy import plan as plan_on_arrays
from d5test.native.library import Declared, declared

REGISTRATION = re.compile(r"^D5TEST_OPERATOR\((\w+)\)", re.MULTILINE)


@dataclass(frozen=True)
class Kernels:
    """The C++ files of a folder, what more the compiler is told, and what they are linked with.

    >>> Kernels(Path("kernels"), flags=("-I/opt/dnnl/include",), libraries=("-ldnnl",)).rows()
    """

    folder: Path
    flags: Sequence[str] = ()
    libraries: Sequence[str] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """What is to be said of a row, by operator: `{"MaxPool": {"outputs": 1}}`."""

    def sources(self) -> dict[str, Path]:
        """The file of each operator."""
        return {
            name: path
            for path in sorted(self.folder.glob("*.cpp"))
            for name in REGISTRATION.findall(path.read_text())
        }

    def rows(self) -> dict[str, Row]:
        """The rows; nothing is compiled for them."""
        return {
            name: replace(
                Row(
                    Guarded(
                        partial(self.plan, path, name, guarded=False),
                        partial(self.plan, path, name, guarded=True),
                    ),
                    dtypes=("float64", "float32"),
                ),
                **self.facts.get(name, {}),
            )
            for name, path in self.sources().items()
        }

    def plan(self, path: Path, name: str, op: Any, *inputs: Any, guarded: bool) -> Plan:
        """The function of the arrays; its file is compiled where it is not yet."""
        return plan_on_arrays(self.compiled(path)[name], op, *inputs, guarded=guarded)

    def compiled(self, path: Path) -> dict[str, Declared]:
        """The operators of a file. Raises `CompileError`."""
        return _compiled(path, tuple(self.flags), tuple(self.libraries))


@cache
def _compiled(
    path: Path, flags: tuple[str, ...], libraries: tuple[str, ...]
) -> dict[str, Declared]:
    return declared(compiler.library(path, flags=flags, libraries=libraries))
