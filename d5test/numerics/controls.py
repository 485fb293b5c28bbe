"""Would the bars have told a wrong result? Every case answers that before it counts.

The controls are what broken software returns: zeros, ones, the mean everywhere, an input, and the
reference computed in the next lower precision. A case whose bars reject them all is telling; one
whose bars reject none of the trivial ones is void, and tells nothing about the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from d5test.numerics.bounds import Array, Bounds
from d5test.numerics.judgement import ratios


def rejects(bounds: Bounds, results: Sequence[Array | None]) -> bool:
    """Whether some element of `results` lies outside its bar."""
    return any(
        bool(np.any(ratios(bound, got) > 1))
        for bound, got in zip(bounds, results, strict=False)
        if bound is not None and got is not None and got.shape == bound.value.shape
    )


def trivial(bounds: Bounds, arrays: Sequence[Array | None]) -> Iterator[tuple[Array | None, ...]]:
    """Results that need no arithmetic: zeros, ones, the mean, and each input that fits."""
    present = [b for b in bounds if b is not None]
    yield tuple(None if b is None else np.zeros(b.value.shape) for b in bounds)
    yield tuple(None if b is None else np.ones(b.value.shape) for b in bounds)
    with np.errstate(all="ignore"):
        means = [b.value.size > 1 and np.full(b.value.shape, b.value.mean()) for b in present]
    if present and all(m is not False for m in means):
        filled = iter(means)
        yield tuple(None if b is None else np.asarray(next(filled)) for b in bounds)
    for array in arrays:
        if array is not None and present and array.shape == present[0].value.shape:
            yield tuple(array if b is present[0] else None for b in bounds)


def telling(
    bounds: Bounds,
    arrays: Sequence[Array | None],
    lowered: Callable[[], Sequence[Array | None]],
) -> tuple[bool, bool]:
    """(telling, void) of the bars `bounds` on the inputs `arrays`.

    `lowered` computes the results in the next lower precision.
    """
    verdicts: set[bool] = set()
    for wrong in trivial(bounds, arrays):
        verdicts.add(rejects(bounds, wrong))
        if len(verdicts) == 2:
            return False, False
    return False not in verdicts and rejects(bounds, lowered()), True not in verdicts
