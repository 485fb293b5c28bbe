"""How far into the tail of a logistic function a case reaches, for conditions on known failures.

`exponent` is a field of `where`: the largest argument that the reference, run on the case, gives
to `np.exp`. A sigmoid that is 0 below -18 fails where it is above 18, whatever the weights that
lead there.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from d5test.case import Case


def exponent(case: Case) -> float:
    """The largest finite argument of `np.exp`; minus infinity if there is none."""
    largest = -inf

    class Watched(np.ndarray[Any, np.dtype[Any]]):
        def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
            nonlocal largest
            if ufunc is np.exp:
                argument = np.asarray(given[0])
                finite = argument[np.isfinite(argument)]
                largest = max(largest, float(finite.max(initial=-inf)))
            if "out" in options:
                options["out"] = tuple(_plain(x) for x in options["out"])
            result = getattr(ufunc, method)(*map(_plain, given), **options)
            return np.asarray(result).view(Watched)  # of no dimensions, it would be a scalar

    def _plain(x: Any) -> Any:
        return x.view(np.ndarray) if isinstance(x, Watched) else x

    arrays = (
        None if x is None
        else x.astype(np.float64).view(Watched) if i in case.wanted
        else x
        for i, x in enumerate(case.arrays())
    )  # fmt: skip
    with np.errstate(all="ignore"):
        case.op(*arrays)
    return largest
