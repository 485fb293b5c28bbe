"""A benchmark file without its rounds: what is left of it fits into memory.

Requirements: an array of rounds is replaced by the number of its elements, whatever its length,
without ever being held; every other byte stays as it is. Of the wall times some can be kept: an
object of their number, `count`, and of some of them, evenly spaced, `some` (float32 in base64).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from d5test.compare.rounds import Thinned, packed
from d5test.files import TooLarge

ARRAY = re.compile(rb'"(?:data|seconds|cpu|preempted)"\s*:\s*\[')
"""An array of rounds, up to its bracket. Inside of a string its quotes would be escaped."""
LONGEST = 64
"""Bytes that such a key may have, so that one that the end of a block tears is still found."""
NUMBERS = b"0123456789+-.eE \t\r\n"
"""What numbers consist of, and the space between them."""
BLOCK = 1 << 22
LARGEST = 1 << 26
"""Bytes beside the rounds: 10,000 records have three quarters of it. As much again of kept rounds,
which stay bytes."""
TIMES = b'"data"'
"""The array of which rounds are kept: wall times."""


def condensed(blocks: Iterable[bytes], rounds: int = 0) -> bytes:
    """All of the blocks; arrays of rounds that hold numbers alone are their lengths.

    `rounds`: how many wall times of each benchmark are kept at most.
    """
    kept = Kept(rounds)
    for block in blocks:
        kept.take(block)
    return kept.finished()


class Kept:
    """What was kept so far, and where in the text it stands."""

    def __init__(self, rounds: int) -> None:
        self._rounds_wanted = rounds
        self._some: Thinned | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._size_of_rounds = 0
        self._torn = b""
        self._inside = False
        self._commas = 0
        self._filled = False

    def take(self, block: bytes) -> None:
        """The next bytes of the file."""
        text, at = self._torn + block, 0
        self._torn = b""
        while at < len(text):
            at = self._rounds(text, at) if self._inside else self._others(text, at)

    def finished(self) -> bytes:
        """Everything that was kept."""
        self._keep(self._torn)
        return b"".join(self._parts)

    def _others(self, text: bytes, at: int) -> int:
        found = ARRAY.search(text, at)
        if found is None:
            whole = max(at, len(text) - LONGEST)
            self._keep(text[at:whole])
            self._torn = text[whole:]
            return len(text)
        self._keep(text[at : found.end() - 1])
        self._inside, self._commas, self._filled = True, 0, False
        wanted = self._rounds_wanted > 0 and found[0].startswith(TIMES)
        self._some = Thinned(self._rounds_wanted) if wanted else None
        return found.end()

    def _rounds(self, text: bytes, at: int) -> int:
        end = text.find(b"]", at)
        part = text[at : end if end >= 0 else len(text)]
        commas = part.translate(None, NUMBERS)
        if commas.strip(b","):
            # Somebody's array of the same name: it is kept, and judged where it is read.
            self._keep(b"[" + b"0," * self._commas)
            self._inside = False
            return at
        self._commas += len(commas)
        self._filled = self._filled or bool(part.strip())
        if self._some is not None:
            self._some.take(part)
        if end < 0:
            return len(text)
        self._count(self._commas + self._filled)
        self._inside = False
        return end + 1

    def _count(self, count: int) -> None:
        """What stands for an array."""
        if self._some is None:
            self._keep(b"%d" % count)
            return
        part = json.dumps({"count": count, "some": packed(self._some.finished())}).encode()
        self._parts.append(part)
        self._size_of_rounds += len(part)
        if self._size_of_rounds > LARGEST:
            raise TooLarge(f"has more than {LARGEST >> 20} MiB of rounds to draw")

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > LARGEST:
            raise TooLarge(f"has more than {LARGEST >> 20} MiB beside its rounds")
