"""Some of a benchmark's rounds, evenly spaced in the order of measurement: enough to draw them.

Requirements: memory and the size of what is written are bounded, however many rounds there were;
wall seconds keep the 24 bits of float32, since nothing is decided upon them.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rounds = NDArray[np.float32]
LONGEST = 64
"""Bytes of a number's text, with the space around it."""


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
        found: Rounds = np.asarray(seconds, np.float64).astype(np.float32)
    return found[np.isfinite(found) & (found > 0)]


def thinned(rounds: Rounds, most: int) -> Rounds:
    """At most so many of them, evenly spaced."""
    if most <= 0:
        return rounds[:0]
    return rounds[:: max(-(-len(rounds) // most), 1)]


def packed(rounds: Rounds) -> str:
    """As little-endian float32 in base64."""
    return base64.b64encode(rounds.astype("<f4").tobytes()).decode()


def unpacked(text: str) -> Rounds:
    """What `packed` made a text of; a ValueError if it is another one."""
    return rounds_of(np.frombuffer(base64.b64decode(text, validate=True), "<f4"))
