"""How far into a tail, or how near to a zero, of a function a case reaches: fields of `where`.

`exponent` is the largest argument that the reference, run on the case, gives to `np.exp`: a
sigmoid that is 0 below -18 fails where it is above 18, whatever the weights that lead there.
`tangent` is the smallest magnitude, but zero, of the arguments that it gives to `np.tanh`: one
that is computed as a difference has no correct digit near 0.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.case import Case


def exponent(case: Case) -> float:
    """The largest finite argument of `np.exp`; minus infinity if there is none."""
    return float(_arguments(case, np.exp).max(initial=-inf))


def tangent(case: Case) -> float:
    """The smallest magnitude of an argument of `np.tanh` but zero; infinity if there is none."""
    magnitudes = np.abs(_arguments(case, np.tanh))
    return float(magnitudes[magnitudes > 0].min(initial=inf))


def _arguments(case: Case, watched: np.ufunc) -> NDArray[Any]:
    """All finite arguments that the reference gives to a function, in one vector."""
    met = [np.zeros(0)]

    class Watched(np.ndarray[Any, np.dtype[Any]]):
        def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
            if ufunc is watched:
                met.append(np.ravel(_plain(given[0])))
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
    arguments = np.concatenate(met)
    return arguments[np.isfinite(arguments)]
