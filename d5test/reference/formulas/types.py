"""Conversions by way of another type."""

import numpy as np

from d5test.reference.formulas.table import Table, mixed
from d5test.reference.operators import types


class SingleFirst:
    """A conversion by way of float32, which rounds what has more bits a first time."""

    def converted(self, x, dtype):
        narrow = types.is_real(dtype) and dtype.itemsize < np.dtype(np.float32).itemsize
        if narrow and isinstance(x, np.ndarray | np.generic):
            x = types.nearest(x, np.dtype(np.float32))
        return super().converted(x, dtype)


class LargestFor480:
    """A conversion to float8_e4m3fn without `saturate`: of what rounds to 480, 448 and not NaN."""

    def converted(self, x, dtype):
        y = super().converted(x, dtype)
        if self.saturate or dtype.name != "float8_e4m3fn" or not hasattr(x, "dtype"):
            return y
        real = x.astype(np.float64)
        to_480 = (np.abs(real) >= 480) & (np.abs(real) < 496)
        return np.where(to_480, np.copysign(448, real).astype(dtype), y)


FORMULAS: Table = {
    "float32 first": mixed(SingleFirst, types.Cast, types.CastLike),
    "448 for 480": mixed(LargestFor480, types.Cast, types.CastLike),
}
