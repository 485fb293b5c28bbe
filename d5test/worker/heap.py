"""The C heap of the process in which a framework computes, where it is glibc's.

Poisoned while results are judged: memory that is given out is full of 0x7F (3e38 in float32, NaN
in float16) and memory that is given back of 0x80, so that a kernel that leaves an element
unwritten, or reads what was freed, is wrong each time and not now and then. Kept while calls are
timed: freed memory is used again, not given back to the system and asked for anew.
"""

from __future__ import annotations

import ctypes

import numpy as np

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_PERTURB = -1, -3, -6
POISON = 0x80
"""The byte of freed memory; that of fresh memory is its complement."""
PADS = 4
"""How many pads are held at once."""
KEPT = 1 << 30
"""Bytes that the heap keeps, and below which it maps no memory of its own for one tensor."""


def poison() -> None:
    """Fill memory when it is given out and when it is given back."""
    _set(M_PERTURB, POISON)


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
