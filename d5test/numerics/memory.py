"""Freed memory is kept for the next array.

glibc hands large arrays back to the system when they are freed, and gets every page of the next
one anew: at 60,000 elements that costs a bar, which needs several arrays at once, four times its
arithmetic. The size from which it does so follows the largest array freed so far, up to 32 MiB.
"""

from __future__ import annotations

from functools import cache

import numpy as np

LARGEST = 32 * 2**20
"""Bytes up to which glibc follows."""


@cache
def keep_freed_memory() -> None:
    """Allocate and free almost the largest array that glibc follows, untouched; once a process."""
    np.empty(LARGEST - 2**16, np.uint8)
