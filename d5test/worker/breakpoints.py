"""Which functions of the framework's native libraries are entered: breakpoints that hit once.

The library that sets them is compiled by who asks, from `d5test/native/breakpoints.cpp`; its
breakpoints stand at every function of the framework's libraries that are loaded when they are
first armed. Only what the framework is asked to compute counts, not how tensors are made and read.
NumPy and the standard library only.
"""

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend, Unsupported
from d5test.worker.functions import Library, NotReadable


@dataclass(frozen=True)
class Code:
    """Code of a library in this process, and the offset of its first byte in the file."""

    path: str
    start: int
    end: int
    offset: int


def mapped() -> Iterator[Code]:
    """The code of files that this process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, offset, _, _, *path = line.split(maxsplit=5)
        if "x" in rights and path and path[0].startswith("/"):
            start, end = (int(number, 16) for number in span.split("-"))
            yield Code(path[0], start, end, int(offset, 16))


def computing(backend: Backend) -> list[Code]:
    """The code of the libraries that compute for a backend, by path."""
    parts = backend.libraries
    if not parts:
        file = getattr(sys.modules.get(backend.framework), "__file__", None)
        package = os.path.dirname(os.path.realpath(file)) if file else ""
        parts = (f"{package}/", f"{package}.libs/") if package else ()
    chosen = (code for code in mapped() if any(part in code.path for part in parts))
    return sorted(chosen, key=lambda code: (code.path, code.start))


class Breakpoints:
    """Those of one worker; once they are armed, functions are known by their places.

    `library` is the path of the compiled one. Raises `Unsupported` where they cannot be set.
    """

    def __init__(self, backend: Backend, library: str) -> None:
        self._setter = ctypes.CDLL(library)
        self._setter.take.restype = ctypes.c_uint64
        self._libraries: list[Library] = []
        self._first: list[int] = []
        """The place of each library's first function."""
        self._offsets: list[NDArray[np.uint64]] = []
        """The addresses of each library's functions, as its file counts them."""
        addresses: list[NDArray[np.uint64]] = []
        ranges: list[Code] = []
        for path, codes in groupby(computing(backend), key=lambda code: code.path):
            try:
                library_of = Library(path)
                pieces = [*self._pieces(library_of, list(codes))]
            except (NotReadable, OSError) as error:
                raise Unsupported(f"no breakpoints: {error}") from None
            self._libraries.append(library_of)
            self._first.append(sum(map(len, addresses)))
            self._offsets.append(np.concatenate([offsets for _, offsets, _ in pieces]))
            addresses += [there for _, _, there in pieces]
            ranges += [code for code, _, _ in pieces]
        if not ranges:
            raise Unsupported(f"no native library of {backend.framework} is loaded")
        self._entered: list[NDArray[np.uint64]] = []
        self._install(np.concatenate(addresses), ranges)

    @staticmethod
    def _pieces(library: Library, codes: Sequence[Code]) -> Iterator[tuple[Code, Any, Any]]:
        """Each range with its functions' addresses, as the file counts them and as they are."""
        entries = library.entries()
        for code in codes:
            first = library.address(code.offset)
            end = first + code.end - code.start
            offsets = entries[(entries >= first) & (entries < end)]
            yield code, offsets, offsets + np.uint64(code.start) - np.uint64(first)

    def _install(self, addresses: NDArray[np.uint64], ranges: Sequence[Code]) -> None:
        order = np.argsort(addresses)
        self._place = order.astype(np.uint64)  # of the setter's functions, which ascend
        self._rank = np.empty_like(self._place)
        self._rank[order] = np.arange(len(order), dtype=np.uint64)
        for code in ranges:
            self._require(self._setter.writable(*map(ctypes.c_uint64, (code.start, code.end))))
        self._room = np.empty(len(order), np.uint64)
        ascending = np.ascontiguousarray(addresses[order])
        self._require(self._setter.install(*_argument(ascending)))

    @staticmethod
    def _require(status: int) -> None:
        if status:
            raise Unsupported(f"no breakpoints: the system refuses them: {os.strerror(status)}")

    def arm(self, places: Sequence[int] | None = None) -> dict[str, int]:
        """Set the breakpoints at these places again, or all; the functions of each library."""
        chosen = self._rank if places is None else self._rank[np.array(places, np.int64)]
        self._set(chosen)
        return {lib.path: len(own) for lib, own in zip(self._libraries, self._offsets)}  # noqa: B905

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within: what is entered counts. What was entered before is watched again."""
        self._set(self._taken())
        try:
            yield
        finally:
            self._entered.append(self._taken())

    def entered(self) -> list[int]:
        """The places of the functions that were entered since they were armed, each told once."""
        entered = np.concatenate([*self._entered, np.zeros(0, np.uint64)])
        self._entered.clear()
        places: list[int] = self._place[entered].tolist()
        return places

    def _taken(self) -> NDArray[np.uint64]:
        """The setter's functions that were entered since it was asked last."""
        count = self._setter.take(_argument(self._room)[0])
        return self._room[:count].copy()

    def _set(self, functions: NDArray[np.uint64]) -> None:
        self._setter.arm(*_argument(np.ascontiguousarray(functions)))

    def names(self, places: Sequence[int]) -> list[tuple[str, int, str]]:
        """Library, address in its file and linker's name of functions."""
        described: list[tuple[str, int, str]] = [("", 0, "")] * len(places)
        wanted = np.array(places, np.int64)
        owner = np.searchsorted(self._first, wanted, "right") - 1
        for i, library in enumerate(self._libraries):
            (here,) = np.nonzero(owner == i)
            offsets = self._offsets[i][wanted[here] - self._first[i]]
            for k, offset, name in zip(here, offsets, library.names(offsets)):  # noqa: B905
                described[k] = (library.path, int(offset), name)
        return described

    def answer(self, verb: str, *arguments: Any) -> Any:
        """What a verb answers: a method."""
        return getattr(self, verb)(*arguments)


def _argument(array: NDArray[np.uint64]) -> tuple[Any, ctypes.c_uint64]:
    """An array as the setter takes it."""
    return ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(len(array))
