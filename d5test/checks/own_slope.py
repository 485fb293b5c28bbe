"""A gradient against the slope of its own forward, where no reference speaks of that forward.

With a reference that holds, `numerical` knows the bars and the truncation. Here both are measured
on p(t) = <dy, f(x + t h v)>: the truncation is the spread of five estimates of p'(0) of different
order and side, which holds the subgradients of a kink nearby too; the rounding is the noise of p,
from its fourth differences over steps so small that any smooth part of them vanishes (More and
Wild, Estimating Computational Noise, SIAM J. Sci. Comput. 33, 2011). A case at a kink is void: of
several, each with a subgradient of its own, one direction says nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.case import Case
from d5test.checks.check import Inquiry
from d5test.checks.direction import along, moved, require_shapes
from d5test.numerics.ensemble import BY_NORM
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Evidence, Fault

STEP = 2.0**-13
"""Truncation of the second order is near 1e-8 then, rounding near 1e-12."""
TINY_STEP = 2.0**-30
TINY_STEPS = (-4, -3, -2, -1, 1, 2, 3, 4)
ORDER = 4


def own_slope(client: Any, case: Case) -> Judgement:
    """The gradient agrees with the slope of the forward, by what the operator itself returns."""
    inquiry = Inquiry("numerical_gradient", client, case)
    grads, wanted = inquiry.upstream, inquiry.wanted
    steps = [k * STEP for k in (1, -1, 2, -2)] + [k * TINY_STEP for k in TINY_STEPS]
    points = [moved(inquiry, wanted, step) for step in steps]
    feeds = (inquiry.feed(grads=grads), *(inquiry.feed(point) for point in points))
    at, *results = inquiry.ask(*feeds)
    gradients = inquiry.gradients(at)
    require_shapes(inquiry, gradients, feeds[0])
    with np.errstate(all="ignore"):
        here = along(grads, at.outputs)
        far, near = np.split(np.array([along(grads, r.outputs) for r in results]), [4])
        best, truncation, kink = derivative(here, *far)
        noise = measured_noise(np.insert(near, len(near) // 2, here))
        slope = _slope(inquiry, gradients, points[:2])
        rounding = BY_NORM * noise + _rounding(inquiry, at, gradients, slope)
        bar = truncation + rounding
    if not math.isfinite(bar) or kink > rounding:
        return Judgement(share=0.0, void=True)
    error = abs(slope - best)
    judgement = Judgement(
        0.0 if error == 0 else error / bar if error < math.inf else math.inf,
        1.0, 0, (), 2 * slope, 2 * best, 2 * bar,
        telling=abs(best) > bar, void=abs(best) <= bar,
    )  # fmt: skip
    if not judgement.right:
        raise disagreement(inquiry, feeds[:3], judgement)
    return judgement


def disagreement(inquiry: Inquiry, feeds: tuple[Any, ...], judgement: Judgement) -> Fault:
    """The fault of a gradient, taken at the first of `feeds`, and two points of the forward."""
    what = "the gradient disagrees with the slope of its own forward"
    evidence = Evidence(feeds, "slope", wanted=inquiry.wanted)
    return inquiry.subject.fault("gradient", what, evidence, judgement)


def derivative(
    here: float, p1: float, m1: float, p2: float, m2: float
) -> tuple[float, float, float]:
    """p'(0) from values at 0, h, -h, 2h and -2h, in units of 1/h; how far estimates of it differ;
    and by how much more the two sides do than those of two widths, which only a kink at 0 makes.
    """
    central, wide = (p1 - m1) / 2, (p2 - m2) / 4
    ahead, behind = (4 * p1 - 3 * here - p2) / 2, (3 * here - 4 * m1 + m2) / 2
    best = (4 * central - wide) / 3
    found = (central, wide, ahead, behind, best)
    return best, max(found) - min(found), abs(ahead - behind) - abs(central - wide)


def measured_noise(values: NDArray[np.float64]) -> float:
    """The standard deviation of the noise in values at equal, tiny steps."""
    differences = np.diff(values, n=ORDER)
    scale = math.factorial(ORDER) ** 2 / math.factorial(2 * ORDER)
    return float(np.sqrt(scale * np.mean(differences**2)))


def _slope(inquiry: Inquiry, gradients: tuple[Any, ...], points: list[Any]) -> float:
    """<g, v> for one step, of the inputs as they were rounded."""
    ahead, behind = points
    return sum(
        float(np.sum(g * (np.asarray(ahead[i]) - np.asarray(behind[i])))) / 2
        for g, i in zip(gradients, inquiry.wanted, strict=True)
    )


def _rounding(inquiry: Inquiry, at: Any, gradients: tuple[Any, ...], slope: float) -> float:
    """What the sums, and inputs that are rounded, do to an estimate; its weights sum up to 4."""
    (arithmetic,) = inquiry.classes()
    sums = sum(
        float(np.sum(np.abs(dy * y)))
        for dy, y in zip(inquiry.upstream, at.outputs, strict=False)
        if dy is not None
    )
    inputs = sum(
        float(np.sum(np.abs(g * inquiry.arrays[i])))
        for g, i in zip(gradients, inquiry.wanted, strict=True)
    )
    terms = max(1, *(y.size for y in at.outputs), *(g.size for g in gradients))
    return (
        arithmetic.sum_error(terms) * (4 * sums + abs(slope)) + 4 * arithmetic.storage.u * inputs
    )
