"""Whether a Dropout in training drops as many as it should, and scales the others."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np

from d5test.case import Array, Case
from d5test.checks.chance import ODDS, SHARES, chance_of, wrong
from d5test.checks.distribution import coarsest
from d5test.checks.inquiry import Inquiry
from d5test.client.messages import Result
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import NO_CALLS, Fault
from d5test.reference.distributions import Categorical


def dropout(client: Any, case: Case) -> Judgement:
    """Each element is dropped with the probability `ratio`, and each call draws another mask.

    The mask is read off the result, for x has no zeros. By this mask the result is within its bar,
    without a gradient and with one, and the gradient of the same call too.
    """
    inquiry = Inquiry("dropout", client, case)
    ratio = inquiry.arrays[1]
    dropped = 0.5 if ratio is None else float(ratio)
    law, eps = Categorical(np.array([dropped, 1 - dropped])), coarsest(case.dtype)
    feeds = inquiry.feed(), inquiry.feed(grads=inquiry.upstream if inquiry.flows else None)
    answers = zip(feeds, inquiry.ask(*feeds), strict=True)
    held = [_held(inquiry, feed, result) for feed, result in answers]
    for mask, _ in held:
        if what := wrong(law, mask, eps, ODDS / len(held)):
            raise inquiry.subject.fault(
                "distribution", f"of the mask, 1 where an element is kept: {what}", NO_CALLS
            )
    (first, _), (second, _) = held
    rare = chance_of(law, first, eps) < log(ODDS / SHARES / len(held))
    if rare and np.array_equal(first, second):
        raise inquiry.subject.fault("cached", "two calls draw the same mask", NO_CALLS)
    worst = max((judgement for _, judgement in held), key=_looseness)
    return replace(worst, telling=rare)


def _held(inquiry: Inquiry, feed: Any, result: Result) -> tuple[Array, Judgement]:
    """The mask of a call, and the judgement of its result and gradient by this mask."""
    x, ratio, _ = inquiry.arrays
    y, *masks = result.outputs
    known = Inquiry("dropout", inquiry.client, inquiry.case)
    assert x is not None
    mask = y != 0 if y.shape == x.shape else np.ones(x.shape, np.bool_)
    known.arrays = (x, ratio, mask)
    try:
        judgement = known.judged(known.forward_bounds, (y,), (feed,))
        if feed.grads is not None:
            gradient = known.judged_gradient(result, feed)
            judgement = max(judgement, gradient, key=_looseness)
    except Fault as fault:
        fault.evidence = NO_CALLS  # another call draws another mask
        raise
    if masks and not np.array_equal(masks[0], mask):
        raise inquiry.subject.fault("value", "the mask is not that of the result", NO_CALLS)
    return mask, judgement


def _looseness(judgement: Judgement) -> tuple[str, float]:
    """How far a right result is from the exact one: the class that holds it, and its ratio."""
    return judgement.arithmetic, judgement.ratio
