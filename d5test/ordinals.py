"""The numbers of a floating-point dtype in their order, counted: neighbours differ by one.

-inf ... -0, 0 ... inf: minus zero has the ordinal -1 and zero 0; NaNs lie beyond the infinities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def ordinals(values: Values) -> NDArray[np.int64]:
    """The place of each value among the numbers of its dtype."""
    bits = values.dtype.itemsize * 8
    pattern = values.view(f"i{values.dtype.itemsize}").astype(np.int64)
    magnitude = pattern & np.int64((1 << (bits - 1)) - 1)
    return np.where(pattern < 0, -1 - magnitude, magnitude)


def numbers(places: NDArray[np.int64], dtype: np.dtype[Any]) -> Values:
    """The value at each place."""
    sign = np.uint64(1 << (8 * dtype.itemsize - 1))
    magnitude = np.where(places < 0, -1 - places, places).astype(np.uint64)
    pattern = np.where(places < 0, magnitude | sign, magnitude)
    return pattern.astype(f"u{dtype.itemsize}").view(dtype)
