"""The framework's gradient against central differences of the framework's own forward.

No reference gradient takes part, so that it also judges operators that have none. Where there is
no reference at all, or the forward is not within its bars, `own_slope` judges. No tolerance is
typed: with x+ = x + hv and x- = x - hv as rounded, what is compared is

    <dy, f(x+) - f(x-)>  and  <g, x+ - x->

and they may differ by the bars of both forwards, by the truncation error, which the reference's
forward and its derivative by dual numbers give at the same points, and by rounding in the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case, Operator
from d5test.checks.check import Inquiry
from d5test.checks.direction import along, moved, require_shapes
from d5test.checks.own_forward import forward_is_wrong
from d5test.checks.own_slope import disagreement, own_slope
from d5test.checks.reasons import Why, listed, without_reference
from d5test.client.messages import BackendInfo
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds
from d5test.numerics.duals import Dual
from d5test.numerics.judgement import Judgement, judge

STEP = 2.0**-17
"""About the cube root of float64's unit roundoff, where truncation and rounding errors meet."""


def numerical_gradient(client: Any, case: Case) -> Judgement:
    """The gradient agrees with the slope of the forward in a random direction."""
    if without_reference(type(case.op)):
        return own_slope(client, case)
    inquiry = Inquiry("numerical_gradient", client, case)
    return inquiry.by_any(lambda arithmetic: _in(inquiry, arithmetic))


def _in(inquiry: Inquiry, arithmetic: Arithmetic) -> Judgement:
    """The judgement by the bars of one arithmetic."""
    case, grads = inquiry.case, inquiry.upstream
    known = inquiry.gradient_bounds(arithmetic, grads) if case.op.differentiable else None
    moving = tuple(
        i for k, i in enumerate(inquiry.wanted) if known is None or known[k] is not None
    )
    ahead, behind = (moved(inquiry, moving, step) for step in (STEP, -STEP))
    feeds = (inquiry.feed(grads=grads), inquiry.feed(ahead), inquiry.feed(behind))
    at, plus, minus = inquiry.ask(*feeds)
    bounds = [inquiry.forward_bounds(arithmetic, a) for a in (ahead, behind)]
    for feed, bound, result in zip(feeds[1:], bounds, (plus, minus), strict=True):
        inquiry.shaped(bound, result.outputs, (feed,))
    require_shapes(inquiry, inquiry.gradients(at), feeds[0])
    found = zip(inquiry.gradients(at), inquiry.wanted, strict=True)
    gradients = [g for g, i in found if i in moving]
    steps = [np.asarray(ahead[i]) - np.asarray(behind[i]) for i in moving]
    slope = sum(float(np.sum(g * s)) for g, s in zip(gradients, steps, strict=True))
    rise = along(grads, plus.outputs) - along(grads, minus.outputs)
    truncation = _truncation(case.op, inquiry.arrays, ahead, behind, grads)
    size = sum(float(np.sum(np.abs(g * s))) for g, s in zip(gradients, steps, strict=True))
    bar = sum(_bars_along(grads, b) for b in bounds) + 2 * truncation
    bar += arithmetic.sum_error(max(sum(s.size for s in steps), 1)) * size
    if known is not None:  # at a tie any subgradient will do, and the bars say how far they reach
        present = [b for b in known if b is not None]
        bar += sum(float(np.sum(b.bar * np.abs(s))) for b, s in zip(present, steps, strict=True))
    for outputs in (plus.outputs, minus.outputs):
        terms = max(sum(y.size for y in outputs), 1)
        bar += arithmetic.sum_error(terms) * along(_sizes(grads), _sizes(outputs))
    with np.errstate(all="ignore"):
        ratio = float(np.divide(abs(slope - rise), bar))
    if not np.isfinite(bar):
        return Judgement(share=0.0, void=True)
    tells = abs(rise) > bar
    judgement = Judgement(
        0.0 if slope == rise else ratio if np.isfinite(ratio) else np.inf,
        1.0, 0, (), slope, rise, bar, telling=tells, void=not tells,
    )  # fmt: skip
    if judgement.right:
        return judgement
    off = max(judge(b, y.outputs).ratio for b, y in zip(bounds, (plus, minus), strict=True))
    if off <= 1:
        raise disagreement(inquiry, feeds, judgement)
    if abs(slope - rise) > bar + off * sum(_bars_along(grads, b) for b in bounds):
        return own_slope(inquiry.client, case)
    raise forward_is_wrong(inquiry)


def has_gradient(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and the framework differentiates it."""
    row = about.rows.get(operator.__name__)
    if row is not None and row.gradient:
        return Unsupported(row.gradient)
    return listed(operator, about, dtype)


def _sizes(arrays: Any) -> tuple[Any, ...]:
    return tuple(None if a is None else np.abs(a) for a in arrays)


def _bars_along(grads: Arrays, bounds: Bounds) -> float:
    return sum(
        float(np.sum(np.abs(dy) * b.bar))
        for dy, b in zip(grads, bounds, strict=False)
        if dy is not None and b is not None
    )


def _truncation(
    op: Operator, arrays: Arrays, ahead: Arrays, behind: Arrays, grads: Arrays
) -> float:
    """How far the central difference itself is from the derivative, in exact arithmetic."""
    duals: dict[int, Any] = {}
    inputs = []
    for x, a, b in zip(arrays, ahead, behind, strict=True):
        if x is None or x.dtype.kind != "f":
            inputs.append(x)
        else:
            inputs.append(duals.setdefault(id(x), Dual(x, np.asarray(a) - np.asarray(b))))
    with np.errstate(all="ignore"):
        derivative = [
            y.full_companion() if isinstance(y, Dual) else np.zeros(np.shape(y))
            for y in op(*inputs)
        ]
        rise = [p - m for p, m in zip(op(*ahead), op(*behind), strict=True)]
    return abs(along(grads, rise) - along(grads, derivative))
