"""How fast the machine is at this moment: seconds for a piece of work that is always the same.

A clock that sinks and a neighbour on the core slow this work and a framework's alike, so what a
call costs in such pieces varies less from one minute to the next than what it costs in seconds.
The work is the interpreter's own, so that no version of a framework changes it.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import time

BLOCK = bytes(1 << 16)
TURNS = 6
"""Pieces of which the fastest counts: 50 us each where that was measured."""


def work(_: object) -> str:
    """What is timed. Paces of other works are not comparable."""
    built = " ".join(platform.python_build())
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return f"BLAKE2b of {len(BLOCK)} bytes, {name} ({built}, {platform.machine()}, {sys.platform})"


def pace(_: object) -> float:
    """Seconds for the work, now."""
    return min(_seconds() for _ in range(TURNS))


def _seconds() -> float:
    begun = time.perf_counter()
    hashlib.blake2b(BLOCK).digest()
    return time.perf_counter() - begun
