"""d5test's own kernels as a backend: readable C++ (`d5test/native/kernels`) and a compiler.

What a check calls runs between guard zones, what is timed does not (`docs/native.md`). An operator
without a kernel is unsupported. What rows there are is known without a compiler, from the
registrations `D5TEST_OPERATOR(Name)` in the files. A file is compiled when one of its operators is
first called, once in each process (see `d5test.native.compiler` for what is kept between them).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

from d5test.backends.base import Backend, Plan, Row, Unsupported
from d5test.backends.numpy import Numpy
from d5test.native import compiler
from d5test.native.bridges import DTYPES, Guarded
from d5test.native.bridges.numpy import plan as plan_on_arrays
from d5test.native.library import Declared, declared

REGISTRATION = re.compile(r"^D5TEST_OPERATOR\((\w+)\)", re.MULTILINE)


@dataclass(frozen=True)
class Kernels:
    """The C++ files of a folder, further flags of the compiler, and what they are linked with.

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
            name: Row(
                Guarded(
                    partial(self.plan, path, name, False), partial(self.plan, path, name, True)
                ),
                **{"dtypes": DTYPES, **self.facts.get(name, {})},
            )
            for name, path in self.sources().items()
        }

    def plan(self, path: Path, name: str, guarded: bool, op: Any, *inputs: Any) -> Plan:
        """The function of the arrays; its file is compiled where it is not yet.

        Raises `CompileError`.
        """
        operators = _compiled(path, tuple(self.flags), tuple(self.libraries))
        return plan_on_arrays(operators[name], guarded, op, *inputs)


@cache
def _compiled(
    path: Path, flags: tuple[str, ...], libraries: tuple[str, ...]
) -> dict[str, Declared]:
    return declared(compiler.library(path, flags=flags, libraries=libraries))


ROOT = Path(__file__).resolve().parents[1]


class Native(Numpy):
    """Kernels of a folder on NumPy arrays, differentiated by their own backward.

    A subclass has other `kernels`, and `rows = kernels.rows()` with them.
    """

    framework = "d5test"
    kernels: ClassVar[Kernels] = Kernels(ROOT / "native" / "kernels")
    rows: ClassVar[Mapping[str, Row]] = kernels.rows()
    updaters: ClassVar[Mapping[str, Any]] = {}
    jvp, hvp = Backend.jvp, Backend.hvp
    """A kernel has one gradient, which is no array operation."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        try:
            self._compiler = compiler.version()
        except compiler.CompileError as error:
            raise Unsupported(str(error)) from None

    @property
    def version(self) -> str:
        """d5test's and the compiler's: `0.1.0+gxx.12.2.0`."""
        (ours,) = re.findall(r'__version__ = "(.+)"', (ROOT / "__init__.py").read_text())
        return f"{ours}+{self._compiler}"
