"""A benchmark file without its rounds: what is left of it fits into memory.

Requirements: an array of rounds is replaced by the number of its elements, whatever its length,
without ever being held; every other byte stays as it is. Of the wall times some can be kept: an
object of their number, `count`, and of some of them, evenly spaced in the order of measurement,
`some` (in base64: the 24 bits of float32 are enough to draw them).
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.files import TooLarge

Rounds = NDArray[np.float32]

ARRAY = re.compile(rb'"(?:data|seconds|cpu|preempted)"\s*:\s*\[')
"""An array of rounds, up to its bracket. Inside of a string its quotes would be escaped."""
LONGEST = 64
"""Bytes that such a key may have, so that one that the end of a block tears is still found; and
that the text of a number may have, with the space around it."""
NUMBERS = b"0123456789+-.eE \t\r\n"
"""What numbers consist of, and the space between them."""
BLOCK = 1 << 22
LARGEST = 1 << 26
"""Bytes beside the rounds: 10,000 records have three quarters of it. As much again of kept rounds,
which stay bytes."""
TIMES = b'"data"'
"""The array of which rounds are kept: wall times."""
BESIDE, DRAWN = "beside its rounds", "of rounds to draw"
"""Kinds of what is kept: of each there are at most `LARGEST` bytes."""


def condensed(blocks: Iterable[bytes], rounds: int = 0) -> bytes:
    """All of the blocks; arrays of rounds that hold numbers alone are their lengths.

    `rounds`: how many wall times of each benchmark are kept at most.
    """
    parts: list[bytes] = []
    sizes: Counter[str] = Counter()
    for kind, part in _kept(iter(blocks), rounds):
        parts.append(part)
        sizes[kind] += len(part)
        if sizes[kind] > LARGEST:
            raise TooLarge(f"has more than {LARGEST >> 20} MiB {kind}")
    return b"".join(parts)


def _kept(blocks: Iterator[bytes], rounds: int) -> Iterator[tuple[str, bytes]]:
    """What is kept, in order, and of which kind it is."""
    text, at = b"", 0
    while True:
        key = ARRAY.search(text, at)
        if key is not None:
            yield BESIDE, text[at : key.end() - 1]
            thinned = Thinned(rounds) if rounds > 0 and key[0].startswith(TIMES) else None
            text, at = yield from _array(blocks, text, key.end(), thinned)
            continue
        whole = max(at, len(text) - LONGEST)
        yield BESIDE, text[at:whole]
        block = next(blocks, None)
        if block is None:
            yield BESIDE, text[whole:]
            return
        text, at = text[whole:] + block, 0


def _array(
    blocks: Iterator[bytes], text: bytes, at: int, thinned: Thinned | None
) -> Generator[tuple[str, bytes], None, tuple[bytes, int]]:
    """What stands for an array that begins at a place of a text; the text and place behind it."""
    commas, filled = 0, False
    while True:
        end = text.find(b"]", at)
        part = text[at : end if end >= 0 else len(text)]
        others = part.translate(None, NUMBERS)
        if others.strip(b","):
            # Somebody's array of the same name: it is kept, and judged where it is read.
            yield BESIDE, b"[" + b"0," * commas
            return text, at
        commas += len(others)
        filled = filled or bool(part.strip())
        if thinned is not None:
            thinned.take(part)
        if end >= 0:
            break
        text, at = next(blocks, b""), 0
        if not text:  # the file ends here: its end is missing in what is kept, too
            return text, at
    count = commas + filled
    if thinned is None:
        yield BESIDE, b"%d" % count
    else:
        some = packed(thinned.finished())
        yield DRAWN, json.dumps({"count": count, "some": some}).encode()
    return text, end + 1


class Thinned:
    """Every k-th of the numbers of a JSON array; k is doubled while there are more than `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._step = 1
        self._seen = 0
        self._kept: list[bytes] = []
        self._torn = b""

    def take(self, part: bytes) -> None:
        """The next bytes between the array's brackets."""
        numbers = (self._torn + part).split(b",")
        self._torn = numbers.pop().strip()[:LONGEST]
        self._add(numbers)

    def finished(self) -> Rounds:
        """Those kept; none if one of them is no number."""
        self._add([self._torn] if self._torn else [])
        try:
            return rounds_of(list(map(float, self._kept)))
        except ValueError:
            return rounds_of([])

    def _add(self, numbers: list[bytes]) -> None:
        self._kept += numbers[-self._seen % self._step :: self._step]
        self._seen += len(numbers)
        while len(self._kept) > self._most:
            self._kept = self._kept[::2]
            self._step *= 2


def rounds_of(seconds: Any) -> Rounds:
    """Those of the numbers that are times."""
    with np.errstate(over="ignore"):
        rounds: Rounds = np.asarray(seconds, np.float64).astype(np.float32)
    return rounds[np.isfinite(rounds) & (rounds > 0)]


def thinned(rounds: Rounds, most: int) -> Rounds:
    """At most so many of them, evenly spaced."""
    return rounds[:: max(-(-len(rounds) // most), 1)] if most > 0 else rounds[:0]


def packed(rounds: Rounds) -> str:
    """As little-endian float32 in base64."""
    return base64.b64encode(rounds.astype("<f4").tobytes()).decode()


def unpacked(text: str) -> Rounds:
    """What `packed` made a text of; a ValueError if it is another one."""
    return rounds_of(np.frombuffer(base64.b64decode(text, validate=True), "<f4"))
