"""Were the timed calls right? The same bars as everywhere, affordable for large problems.

A recurrence of many steps is judged by the ensemble. Of a problem too large to repeat in NumPy,
as many independent samples are judged as are affordable, and the share says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from d5test.case import Arrays, Case
from d5test.checks.check import Inquiry
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds, forward_bounds, gradient_bounds
from d5test.numerics.ensemble import MEMBERS, ensemble_bounds, norm_ratio
from d5test.numerics.judgement import Judgement, judge, tightest
from d5test.reference.operators.unrolling import Recurrent

STEPS = 16
"""Recurrences of more steps are judged by the ensemble: a bar grows exponentially with them."""
AFFORDABLE = 2 * 10**9
"""Scalar multiplications of the reference: a second or so in NumPy, several with bars."""


def verify(client: Any, case: Case, grads: Arrays | None, results: Sequence[Any]) -> Judgement:
    """The judgement of `results`: outputs, or with `grads` one gradient for each input."""
    inquiry = Inquiry("time", client, case)
    classes = [replace(a, independent=True) for a in inquiry.attempts()]
    first = case.shapes[0]
    assert first is not None
    many = isinstance(case.op, Recurrent) and first[case.op.layout] > STEPS
    part = Part(case, inquiry.arrays, grads, results, repeats=1 + MEMBERS if many else 1)
    if many:
        bounds = ensemble_bounds(case.op, part.arrays, part.grads, classes[0])
        judgement = judge(bounds, part.results)
        ratio = max(judgement.ratio, norm_ratio(bounds, part.results))
        return replace(judgement, ratio=ratio, share=judgement.share * part.share)

    def bounds_in(arithmetic: Arithmetic) -> Bounds:
        if part.grads is None:
            return forward_bounds(inquiry.operator(arithmetic), part.arrays, arithmetic)
        return gradient_bounds(inquiry.operator(arithmetic), part.arrays, part.grads, arithmetic)

    judgement, _ = tightest(classes, bounds_in, part.results)
    return replace(judgement, share=judgement.share * part.share)


class Part:
    """As many samples of a problem as are affordable: all of them, if they are.

    Gradients of what the samples share, the weights, need all samples: they are left out then.
    """

    def __init__(
        self,
        case: Case,
        arrays: Arrays,
        grads: Arrays | None,
        results: Sequence[Any],
        repeats: int,
    ) -> None:
        self.arrays, self.grads, self.results, self.share = arrays, grads, tuple(results), 1.0
        work = (case.op.multiplications(*case.shapes) or 0) * repeats
        work *= 1 if grads is None else 3
        batch = case.op.batch(*case.shapes)
        if work <= AFFORDABLE or batch is None:
            return
        pairs = zip(case.shapes, batch.inputs, strict=False)
        size = next(s[a] for s, a in pairs if s and a is not None)
        count = max(1, size * AFFORDABLE // work)
        inputs = batch.inputs + (None,) * (len(arrays) - len(batch.inputs))
        self.arrays = _first(arrays, inputs, count)
        if grads is None:
            self.results = _first(results, batch.outputs, count)
            self.share = count / size
        else:
            self.grads = _first(grads, batch.outputs, count)
            own = tuple(r if a is not None else None for r, a in zip(results, inputs, strict=True))
            self.results = _first(own, inputs, count)
            elements = sum(np.size(r) for r in results if r is not None)
            self.share = sum(np.size(r) for r in self.results if r is not None) / elements


def _first(arrays: Sequence[Any], axes: Sequence[int | None], count: int) -> tuple[Any, ...]:
    """The first samples of the arrays that have them."""
    return tuple(
        x if x is None or axis is None else np.take(x, range(count), axis)
        for x, axis in zip(arrays, axes, strict=False)
    )
