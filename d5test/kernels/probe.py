"""Breakpoints in a worker, seen from outside: what was entered since, by name."""

import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import d5test.native
from d5test.client.client import BackendClient
from d5test.native import compiler

SOURCE = Path(d5test.native.__file__).with_name("breakpoints.cpp")


class NoMeans(Exception):
    """This machine cannot tell which functions are entered; why, in one line."""


class Function(NamedTuple):
    """A function of a library: the file's path, its address in the file, the linker's name."""

    library: str
    address: int
    name: str


def setter() -> str:
    """The path of the library that sets breakpoints, compiled if it is not yet.

    Raises `NoMeans`.
    """
    machine = (sys.platform, platform.machine())
    if machine not in (("linux", "x86_64"), ("linux", "AMD64")):
        raise NoMeans(
            f"breakpoints need Linux on an x86-64 processor, this is {' '.join(machine)}"
        )
    try:
        return str(compiler.library(SOURCE))
    except (compiler.CompileError, OSError) as error:
        raise NoMeans(f"{SOURCE.name} is not compiled: {str(error).splitlines()[0]}") from None


class Probe:
    """The functions that a backend's worker enters.

    A worker that took the place of one that ended is armed when it is first asked. Raises
    `Unsupported` where the breakpoints cannot be set.
    """

    def __init__(self, client: BackendClient) -> None:
        self.client = client
        self._setter = setter()

    def arm(self) -> dict[str, int]:
        """Watch every function from now on; how many each library has, by path."""
        counts: dict[str, int] = self._ask("arm")
        return counts

    def entered(self) -> list[int]:
        """The places of what was entered since it was armed, each told once."""
        places: list[int] | None = self._ask("entered")
        if places is None:
            self.arm()
        return places or []

    def forget(self, places: Sequence[int]) -> None:
        """Watch these again."""
        self._ask("arm", list(places))

    def named(self, places: Sequence[int]) -> list[Function]:
        """What stands at these places."""
        return [Function(*described) for described in self._ask("names", list(places)) or ()]

    def _ask(self, verb: str, *arguments: Any) -> Any:
        return self.client.ask("breakpoints", self._setter, verb, *arguments)
