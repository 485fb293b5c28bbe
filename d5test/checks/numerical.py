"""The framework's gradient against central differences of the framework's own forward.

No reference gradient takes part, so that it also judges operators that have none. No tolerance is
typed: with x+ = x + hv and x- = x - hv as rounded, what is compared is

    <dy, f(x+) - f(x-)>  and  <g, x+ - x->

and they may differ by the bars of both forwards, by the truncation error, which the reference's
forward and its derivative by dual numbers give at the same points, and by rounding in the sum.

Where there is no reference at all, or the forward is not within its bars, both are measured on
p(t) = <dy, f(x + t h v)>: the truncation is the spread of five estimates of p'(0) of different
order and side, which holds the subgradients of a kink nearby too; the rounding is the noise of p,
from its fourth differences over steps so small that any smooth part of them vanishes (More and
Wild, Estimating Computational Noise, SIAM J. Sci. Comput. 33, 2011). A case at a kink is void: of
several, each with a subgradient of its own, one direction says nothing.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case, Operator, Tensor
from d5test.checks.check import Why, listed, without_reference
from d5test.checks.inquiry import Inquiry
from d5test.checks.own_forward import forward_is_wrong
from d5test.client.messages import BackendInfo
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bound
from d5test.numerics.dual import moved_outputs
from d5test.numerics.ensemble import BY_NORM
from d5test.numerics.judgement import Judgement, judge
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

STEP = 2.0**-17
"""About the cube root of float64's unit roundoff, where truncation and rounding errors meet."""
WIDE_STEP = 2.0**-13
"""Truncation of the second order is near 1e-8 then, rounding near 1e-12."""
TINY_STEP = 2.0**-30
TINY_STEPS = (-4, -3, -2, -1, 1, 2, 3, 4)
ORDER = 4


def has_gradient(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and the framework differentiates it."""
    row = about.rows.get(operator.__name__)
    if row is not None and row.gradient:
        return Unsupported(row.gradient)
    return listed(operator, about, dtype)


def numerical_gradient(client: Any, case: Case) -> Judgement:
    """The gradient agrees with the slope of the forward in a random direction."""
    inquiry = Inquiry("numerical_gradient", client, case)
    if without_reference(type(case.op)):
        return own_slope(inquiry)
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
    expected = [partial(inquiry.forward_bounds, arrays=arrays) for arrays in (ahead, behind)]
    at, plus, minus = inquiry.ask(*feeds, ahead=expected)
    bounds = [bound(arithmetic) for bound in expected]
    for feed, bound, result in zip(feeds[1:], bounds, (plus, minus), strict=True):
        inquiry.shaped(bound, result.outputs, (feed,))
    every = inquiry.gradients(at)
    _require_shapes(inquiry, every, feeds[0])
    gradients = [g for g, i in zip(every, inquiry.wanted, strict=True) if i in moving]
    steps = [_between(ahead[i], behind[i]) for i in moving]
    slope = inner(gradients, steps)
    rise = inner(grads, plus.outputs) - inner(grads, minus.outputs)
    forward_bars = sum(inner(_sizes(grads), _bars(b)) for b in bounds)
    bar = forward_bars + 2 * _truncation(inquiry, ahead, behind)
    terms = max(sum(s.size for s in steps), 1)
    bar += arithmetic.sum_error(terms) * inner(_sizes(gradients), _sizes(steps))
    if known is not None:
        bar += inner(_sizes(steps), map(_reach, (b for b in known if b is not None), gradients))
    for outputs in (plus.outputs, minus.outputs):
        terms = max(sum(y.size for y in outputs), 1)
        bar += arithmetic.sum_error(terms) * inner(_sizes(grads), _sizes(outputs))
    judgement = _compared(slope, rise, bar)
    if judgement.right:
        if known is None and not _any(gradients):
            raise Inapplicable("its results do not move, and its gradient is zero")
        return judgement
    off = max(judge(b, y.outputs).ratio for b, y in zip(bounds, (plus, minus), strict=True))
    if off <= 1:
        if known is not None:  # where the gradient is outside of its own bars, that is said
            inquiry.judged_gradient(at, feeds[0])
        raise _disagreement(inquiry, feeds, judgement)
    if abs(slope - rise) > bar + off * forward_bars:
        return own_slope(inquiry)
    raise forward_is_wrong(inquiry)


def _any(gradients: Iterable[Any]) -> bool:
    """Whether any element is not zero."""
    return any(np.any(g) for g in gradients if g is not None)


def own_slope(inquiry: Inquiry) -> Judgement:
    """The gradient agrees with the slope of the forward, by what the operator itself returns."""
    grads, wanted = inquiry.upstream, inquiry.wanted
    steps = [k * WIDE_STEP for k in (1, -1, 2, -2)] + [k * TINY_STEP for k in TINY_STEPS]
    points = [moved(inquiry, wanted, step) for step in steps]
    feeds = (inquiry.feed(grads=grads), *(inquiry.feed(point) for point in points))
    at, *results = inquiry.ask(*feeds)
    gradients = inquiry.gradients(at)
    _require_shapes(inquiry, gradients, feeds[0])
    with np.errstate(all="ignore"):
        here = inner(grads, at.outputs)
        far, near = np.split(np.array([inner(grads, r.outputs) for r in results]), [4])
        best, truncation, kink = derivative(here, *far)
        noise = measured_noise(np.insert(near, len(near) // 2, here))
        ahead, behind = points[:2]
        moves = [_between(ahead[i], behind[i]) for i in wanted]
        slope = inner(gradients, moves) / 2
        rounding = BY_NORM * noise + _rounding(inquiry, at.outputs, gradients, slope)
        bar = truncation + rounding
    if kink > rounding:
        if not inquiry.case.op.differentiable and not _any(gradients):
            raise Inapplicable("its results jump, and its gradient is zero")
        return Judgement(share=0.0, void=True)
    judgement = _compared(2 * slope, 2 * best, 2 * bar)
    if not judgement.right:
        raise _disagreement(inquiry, feeds[:3], judgement)
    return judgement


def _compared(got: float, want: float, bar: float) -> Judgement:
    """The judgement of one slope by another."""
    if not math.isfinite(bar):
        return Judgement(share=0.0, void=True)
    with np.errstate(all="ignore"):
        ratio = float(np.divide(abs(got - want), bar))
    ratio = 0.0 if got == want else ratio if math.isfinite(ratio) else math.inf
    tells = abs(want) > bar
    return Judgement(ratio, 1.0, 0, (), got, want, bar, telling=tells, void=not tells)


def derivative(
    here: float, p1: float, m1: float, p2: float, m2: float
) -> tuple[float, float, float]:
    """p'(0) from values at 0, h, -h, 2h and -2h, in units of 1/h; how far estimates of it differ;
    and by how much more the two sides do than those of two widths, which only a kink at 0 makes.
    """
    central, wide = (p1 - m1) / 2, (p2 - m2) / 4
    ahead, behind = (4 * p1 - 3 * here - p2) / 2, (3 * here - 4 * m1 + m2) / 2
    best = (4 * central - wide) / 3
    estimates = (central, wide, ahead, behind, best)
    return best, max(estimates) - min(estimates), abs(ahead - behind) - abs(central - wide)


def measured_noise(values: NDArray[np.float64]) -> float:
    """The standard deviation of the noise in values at equal, tiny steps."""
    differences = np.diff(values, n=ORDER)
    scale = math.factorial(ORDER) ** 2 / math.factorial(2 * ORDER)
    return float(np.sqrt(scale * np.mean(differences**2)))


def moved(inquiry: Inquiry, positions: tuple[int, ...], step: float) -> Arrays:
    """The inputs, those at `positions` moved by `step` times a direction of the case's own."""
    case, arrays = inquiry.case, list(inquiry.arrays)
    for i in positions:
        x: Any = arrays[i]
        direction = Tensor(x.shape, "float64", ("nonzero",)).array(case.seed, 2000 + i)
        arrays[i] = np.asarray(x + step * direction)
    return case.shared(arrays)


def _between(ahead: Any, behind: Any) -> Any:
    """How far an input moves from behind to ahead: not at all where it is infinite."""
    return np.subtract(ahead, behind, where=np.isfinite(ahead), out=np.zeros_like(ahead))


def inner(one: Iterable[Any], other: Iterable[Any]) -> float:
    """<a, b>, over all arrays that both have; NaN of infinities that cancel."""
    with np.errstate(invalid="ignore"):
        return sum(
            float(np.sum(a * b))
            for a, b in zip(one, other, strict=False)
            if a is not None and b is not None
        )


def _sizes(arrays: Iterable[Any]) -> list[Any]:
    return [None if a is None else np.abs(a) for a in arrays]


def _reach(bound: Bound, gradient: Any) -> Any:
    """How far a gradient is from the furthest inside its bars; at a tie any of them will do."""
    return bound.bar + np.minimum(np.abs(gradient - bound.value), bound.bar)


def _bars(bounds: Iterable[Any]) -> list[Any]:
    return [None if b is None else b.bar for b in bounds]


def _truncation(inquiry: Inquiry, ahead: Arrays, behind: Arrays) -> float:
    """How far the central difference itself is from the derivative, in exact arithmetic."""
    op, arrays, grads = inquiry.case.op, inquiry.arrays, inquiry.upstream
    direction = [
        None if x is None or x.dtype.kind != "f" else _between(a, b)
        for x, a, b in zip(arrays, ahead, behind, strict=True)
    ]
    with np.errstate(all="ignore"):
        slopes = moved_outputs(op, arrays, direction)
        both = zip(grads, op(*ahead), op(*behind), strict=False)
        rise = [None if dy is None else p - m for dy, p, m in both]
    return abs(inner(grads, rise) - inner(grads, slopes))


def _rounding(
    inquiry: Inquiry, outputs: tuple[Any, ...], gradients: tuple[Any, ...], slope: float
) -> float:
    """What the sums, and inputs that are rounded, do to an estimate; its weights sum up to 4."""
    (arithmetic,) = inquiry.classes()
    sums = inner(_sizes(inquiry.upstream), _sizes(outputs))
    inputs = inner(_sizes(gradients), _sizes(inquiry.arrays[i] for i in inquiry.wanted))
    terms = max(1, *(y.size for y in outputs), *(g.size for g in gradients))
    return (
        arithmetic.sum_error(terms) * (4 * sums + abs(slope)) + 4 * arithmetic.storage.u * inputs
    )


def _require_shapes(inquiry: Inquiry, gradients: tuple[Any, ...], feed: Any) -> None:
    """Each gradient has the shape of its input; NumPy would broadcast another one."""
    for i, g in zip(inquiry.wanted, gradients, strict=True):
        x: Any = inquiry.arrays[i]
        if g.shape != x.shape:
            raise inquiry.fault(
                "shape", f"the gradient of input {i} has the wrong shape", (feed,), "shaped",
                got=str(g.shape), want=str(x.shape),
            )  # fmt: skip


def _disagreement(inquiry: Inquiry, feeds: tuple[Any, ...], judgement: Judgement) -> Fault:
    """The fault of a gradient, taken at the first of `feeds`, and two points of the forward."""
    what = "the gradient disagrees with the slope of its own forward"
    return inquiry.fault("gradient", what, feeds, "slope", judgement)
