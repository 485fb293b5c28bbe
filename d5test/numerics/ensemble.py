"""Judging compositions: by the spread of noisy references, where a bar would grow without bound.

A recurrence over more than a few steps is run eight times with one rounding error a primitive. Its
spread, element by element, is how far honest arithmetic strays; a result further away than
`BY_ELEMENT` times that, or by norm than `BY_NORM` times, is wrong. The variance of an element is
known from eight runs only, so it is averaged with the whole result's: then a normal error reaches
16 spreads of its element with a probability below 10^-25.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from d5test.case import Operator
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Array, Bound, Bounds, double
from d5test.numerics.perturbed import Noise
from d5test.numerics.tracked import Tracked

MEMBERS, BY_ELEMENT, BY_NORM = 8, 16.0, 8.0


def ensemble_bounds(
    op: Operator,
    arrays: Sequence[Any],
    grads: Sequence[Any] | None,
    arithmetic: Arithmetic,
    seed: int = 0,
) -> Bounds:
    """Bars from the spread of the outputs, or with `grads` of the gradients."""
    plain = _run(op, double(arrays), None if grads is None else double(grads))
    members = [
        _run(op, *_noisy(arrays, grads, arithmetic.primitive.u, seed + i)) for i in range(MEMBERS)
    ]
    return tuple(
        None if y is None else _bound(y, [m[k] for m in members], arithmetic)
        for k, y in enumerate(plain)
    )


def norm_ratio(bounds: Bounds, results: Sequence[Array | None]) -> float:
    """The worst ratio of a result's error and its allowed error, by Euclidean norm."""
    worst = 0.0
    for bound, got in zip(bounds, results, strict=False):
        if bound is None or got is None or bound.storage is None or not bound.value.size:
            continue
        allowed = float(np.linalg.norm(bound.bar)) * BY_NORM / BY_ELEMENT
        error = float(np.linalg.norm(np.asarray(got).astype(np.float64) - bound.value))
        worst = max(worst, 0.0 if error == 0 else error / allowed)
    return worst


def _run(op: Operator, arrays: Sequence[Any], grads: Sequence[Any] | None) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        outputs = op(*arrays)
        results = outputs if grads is None else op.vjp(tuple(grads), tuple(arrays), outputs)
    return tuple(r.value if isinstance(r, Tracked) else r for r in results)


def _noisy(
    arrays: Sequence[Any], grads: Sequence[Any] | None, u: float, seed: int
) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    random = np.random.Generator(np.random.Philox(key=[seed, 0]))

    def noisy(xs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            Noise(x, u=u, random=random) if x is not None and x.dtype.kind == "f" else x
            for x in double(xs)
        )

    return noisy(arrays), None if grads is None else noisy(grads)


def _bound(value: Array, members: list[Array], arithmetic: Arithmetic) -> Bound:
    value = np.asarray(value)
    if value.dtype.kind != "f":
        return Bound(value, np.zeros(value.shape), None)
    variance = np.mean([(m - value) ** 2 for m in members], axis=0)
    pooled = (variance + np.mean(variance)) / 2 if value.size else variance
    ulp = arithmetic.output.error * np.abs(value) + arithmetic.output.eta
    return Bound(value, BY_ELEMENT * np.sqrt(pooled) + ulp, arithmetic.storage)
