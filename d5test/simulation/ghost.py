"""An array that has a size and no data: a schedule that runs on it moves and adds nothing.

Requirements: what is added is counted; whatever a schedule does that is not known here raises, so
that no work is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Work:
    """Bytes that were added since it was last asked."""

    added: int = 0

    def taken(self) -> int:
        """They, once."""
        added, self.added = self.added, 0
        return added


class Ghost:
    """A flat array of `size` elements. Copies are free; sums are counted by `work`."""

    __slots__ = ("dtype", "size", "work")

    def __init__(self, size: int, dtype: Any, work: Work) -> None:
        self.size, self.dtype, self.work = size, np.dtype(dtype), work

    def _of(self, size: int) -> Ghost:
        return Ghost(size, self.dtype, self.work)

    def __len__(self) -> int:
        """Elements."""
        return self.size

    def __getitem__(self, key: slice) -> Ghost:
        """A part."""
        return self._of(len(range(*key.indices(self.size))))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Nothing is written."""

    def copy(self) -> Ghost:
        """Another one."""
        return self._of(self.size)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> Any:
        """A sum of two, which is counted."""
        if ufunc is not np.add or method != "__call__":
            return NotImplemented
        total = out[0] if out else self._of(max(len(x) for x in inputs))
        self.work.added += total.size * total.dtype.itemsize
        return total

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Any
    ) -> Any:
        """What schedules call of NumPy."""
        if func is np.empty_like:
            return self._of(kwargs.get("shape", self.size))
        if func is np.array_split:
            parts = args[1]
            return [self._of(self.size // parts + (i < self.size % parts)) for i in range(parts)]
        return NotImplemented
