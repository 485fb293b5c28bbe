"""The machine on which a framework computes: the C heap of its process, caches, memory and pace.

Where the heap is glibc's, it is poisoned while results are judged: memory that is given out is
full of 0x7F (3e38 in float32, NaN in float16) and memory that is given back of 0x80, so that a
kernel that leaves an element unwritten, or reads what was freed, is wrong each time and not now
and then. While calls are timed it is kept: freed memory is used again, not given back to the
system and asked for anew.

The pace is seconds for a piece of work that is always the same. A clock that sinks and a neighbour
on the core slow this work and a framework's alike, so what a call costs in such pieces varies less
from one minute to the next than what it costs in seconds. The work is the interpreter's own, so
that no version of a framework changes it.
"""

import ctypes
import hashlib
import platform
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_PERTURB = -1, -3, -6
FREED, FRESH = 0x80, 0x7F
"""The bytes of memory that was given back, and of what is given out: its complement."""
PADS = 4
"""How many pads are held at once."""
KEPT = 1 << 30
"""Bytes that the heap keeps, and below which it maps no memory of its own for one tensor."""
BLOCK = bytes(1 << 16)
TURNS = 6
"""Pieces of which the fastest counts: 50 us each where that was measured."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def poison() -> None:
    """Fill memory when it is given out and when it is given back."""
    _set(M_PERTURB, FREED)


def keep() -> None:
    """Fill nothing, and keep what is given back."""
    _set(M_PERTURB, 0)
    _set(M_TRIM_THRESHOLD, KEPT)
    _set(M_MMAP_THRESHOLD, KEPT)


_pads: list[np.ndarray] = []


def pad(_: object, size: int) -> None:
    """Take so many bytes, and hold them: what is made next lies elsewhere. A few are held.

    Where tensors lie decides what they displace in the caches, which makes a kernel faster or
    slower by more than what is looked for; see docs/gate.md.
    """
    if len(_pads) == PADS:
        del _pads[0]
    _pads.append(np.zeros(size, np.uint8))


def _set(option: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(option, value)


def largest_cache() -> int:
    """Bytes of the largest cache of the CPU, 0 where the system does not tell."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = [path.read_text().strip() for path in CACHES.glob("index*/size")]
    return max((int(size[:-1]) * units.get(size[-1], 1) for size in sizes), default=0)


def reset_peak() -> None:
    """Count the resident memory's peak from now on, where the system lets us."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_resident() -> int:
    """Bytes of resident memory used at most: since `reset_peak` on Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next((int(s.split()[1]) * 1024 for s in lines if s.startswith("VmHWM:")), 0)


def work(_: object) -> str:
    """What is timed. Paces of other works are not comparable."""
    built = " ".join(platform.python_build())
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return f"BLAKE2b of {len(BLOCK)} bytes, {name} ({built}, {platform.machine()}, {sys.platform})"


def pace(_: object) -> float:
    """Seconds for the work, now."""
    seconds = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        hashlib.blake2b(BLOCK).digest()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)
