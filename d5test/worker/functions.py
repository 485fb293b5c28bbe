"""The functions of a native library that this process has loaded: where they begin, their names.

Entries are those of ELF's symbol tables, and of a stripped library those of the unwinder's table
(`.eh_frame_hdr`), which has every function that an exception can pass. The standard library and
NumPy only.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT = struct.Struct("<IIQQQQQQ")
LOADED, EXECUTABLE = 1, 1
PAGE = mmap.PAGESIZE
SYMBOLS = (2, 11)
"""Types of sections: SHT_SYMTAB and SHT_DYNSYM."""
FUNCTION = 2
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
     ("size", "<u8")]
)  # fmt: skip
UNWINDING = bytes((1, 0x1B, 0x03, 0x3B))
"""How `.eh_frame_hdr` begins: version 1, numbers of 32 bits, a table relative to its start."""
CODE = ".text"
"""Sections of functions begin with it; those of trampolines (`.plt`) do not."""


class NotReadable(Exception):
    """A file that is no library as this processor runs it."""


@dataclass(frozen=True)
class Section:
    """A section of a library, as its header has it."""

    name: str
    kind: int
    address: int
    offset: int
    size: int
    link: int


class Library:
    """A file in ELF's 64-bit format. Raises `NotReadable`."""

    def __init__(self, path: str) -> None:
        self.path = path
        with Path(path).open("rb") as file:
            try:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise NotReadable(f"{path} is empty") from None
        try:
            self.sections = list(self._sections())
            self.segments = list(self._segments())
        except (struct.error, ValueError, IndexError):
            raise NotReadable(f"{path} is damaged") from None

    def entries(self) -> NDArray[np.uint64]:
        """Addresses at which functions begin, ascending, as the file counts them."""
        values = [symbols["value"] for symbols, _ in self._tables]
        every = np.unique(np.concatenate([*values, self._unwound(), np.zeros(0, np.uint64)]))
        inside = np.zeros(len(every), bool)
        for s in self.sections:
            if s.name.startswith(CODE):
                inside |= (every >= s.address) & (every < s.address + s.size)
        return every[inside]

    def names(self, entries: NDArray[np.uint64]) -> list[str]:
        """The linker's name of each, the first of several; empty where it has none."""
        names = [""] * len(entries)
        for symbols, strings in self._tables:
            for k, at in enumerate(np.searchsorted(symbols["value"], entries)):
                if not names[k] and at < len(symbols) and symbols["value"][at] == entries[k]:
                    names[k] = self._text(strings.offset + int(symbols["name"][at]))
        return names

    def address(self, offset: int) -> int:
        """Where a page of the file that is run lies, as the file counts addresses."""
        for start, address, size in self.segments:
            if start - start % PAGE <= offset < start + size:
                return address + offset - start
        raise NotReadable(f"{self.path} has no code at {offset:#x}")

    @cached_property
    def _tables(self) -> list[tuple[NDArray[Any], Section]]:
        """The functions of each table of symbols by their addresses, and where the names are."""
        tables = []
        for section in self.sections:
            if section.kind in SYMBOLS:
                count = section.size // SYMBOL.itemsize
                every = np.frombuffer(self._bytes, SYMBOL, count, section.offset)
                here = (every["info"] & 0xF == FUNCTION) & (every["section"] != 0)
                functions = every[here]
                functions = functions[np.argsort(functions["value"], kind="stable")]
                tables.append((functions, self.sections[section.link]))
        return tables

    def _unwound(self) -> NDArray[np.uint64]:
        """The entries that the unwinder knows, where its table is of the usual kind."""
        header = next((s for s in self.sections if s.name == ".eh_frame_hdr"), None)
        if header is None or self._bytes[header.offset : header.offset + 4] != UNWINDING:
            return np.zeros(0, np.uint64)
        (count,) = struct.unpack_from("<I", self._bytes, header.offset + 8)
        pairs = np.frombuffer(self._bytes, "<i4", 2 * count, header.offset + 12)
        return (pairs[::2].astype(np.int64) + header.address).astype(np.uint64)

    def _sections(self) -> Iterator[Section]:
        ident, _, machine, *_, table, _, _, _, _, size, count, names = HEADER.unpack_from(
            self._bytes
        )
        if ident[:6] != b"\x7fELF\x02\x01" or machine != 62:
            raise NotReadable(f"{self.path} is not of an x86-64 processor")
        rows = [SECTION.unpack_from(self._bytes, table + i * size) for i in range(count)]
        for name, kind, _, address, offset, length, link, *_ in rows:
            text = self._text(rows[names][4] + name)
            yield Section(text, kind, address, offset, length, link)

    def _segments(self) -> Iterator[tuple[int, int, int]]:
        """Offset, address and size of what is loaded to be run."""
        _, _, _, _, _, table, _, _, _, size, count, *_ = HEADER.unpack_from(self._bytes)
        for i in range(count):
            row = SEGMENT.unpack_from(self._bytes, table + i * size)
            kind, rights, offset, address, _, length, *_ = row
            if kind == LOADED and rights & EXECUTABLE:
                yield offset, address, length

    def _text(self, offset: int) -> str:
        end = self._bytes.find(b"\0", offset)
        return self._bytes[offset:end].decode(errors="replace")
