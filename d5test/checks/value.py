"""Forward and gradient against the reference's bars, in full and in low precision."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from d5test.case import Arrays, Case
from d5test.checks.check import Inquiry
from d5test.checks.own_forward import OwnForward, forward_is_wrong, largest_error
from d5test.client.client import Feed
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

DEGREE = 16
"""The largest of the polynomials by which functions are approximated."""


def forward(client: Any, case: Case) -> Judgement:
    """Every element of every output lies within its bar."""
    inquiry = Inquiry("forward", client, case)
    feed = inquiry.feed()
    (result,) = inquiry.ask(feed)
    return inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))


def gradient(client: Any, case: Case) -> Judgement:
    """Every element of every gradient, under random upstream gradients, lies within its bar."""
    return _gradient(Inquiry("gradient", client, case))


def low_precision(client: Any, case: Case) -> Judgement:
    """As `forward` and `gradient`, in the tightest arithmetic class that holds both."""
    inquiry = Inquiry("low_precision", client, case)
    feed = inquiry.feed()
    (result,) = inquiry.ask(feed)
    outputs = inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))
    if inquiry.row.gradient or not case.op.differentiable:
        return outputs
    gradients = _gradient(inquiry)
    worse = max(outputs, gradients, key=lambda j: (j.arithmetic, j.ratio))
    return replace(
        worse,
        telling=outputs.telling or gradients.telling,
        void=outputs.void and gradients.void,
        share=min(outputs.share, gradients.share),
    )


def _gradient(inquiry: Inquiry) -> Judgement:
    grads = inquiry.upstream
    feed = inquiry.feed(grads=grads)
    (result,) = inquiry.ask(feed)
    own = OwnForward(inquiry)
    wrong = _wrong_with_gradient(own, feed, result.outputs)
    try:
        return inquiry.judged(
            lambda arithmetic: inquiry.gradient_bounds(arithmetic, grads),
            inquiry.gradients(result),
            (feed,),
            kind="gradient",
            what="the gradient is wrong",
            grads=grads,
        )
    except Fault as fault:
        slight = fault.judgement is not None and fault.judgement.explained != 0
        if (wrong or slight) and _follows(inquiry.gradients(result), own, grads):
            raise forward_is_wrong(inquiry) from None
        raise


def _wrong_with_gradient(own: OwnForward, feed: Feed, outputs: tuple[Any, ...]) -> bool:
    """Whether the outputs are wrong, and as wrong when no gradient is asked for."""
    inquiry = own.inquiry
    try:
        inquiry.held(
            inquiry.forward_bounds,
            outputs,
            (feed,),
            kind="value",
            what="the outputs are wrong when a gradient is asked for",
            claim="computed",
        )
    except Fault as fault:
        cause = own.cause(fault, outputs, inquiry.forward_bounds, inquiry.feed())
        if not isinstance(cause, Inapplicable):
            raise cause from None
        return True
    return False


def _follows(gradients: tuple[Any, ...], own: OwnForward, grads: Arrays) -> bool:
    """Whether wrong gradients may come of a wrong forward alone.

    Any may, of another function. A polynomial of degree n that is off by e is off by n^2 e at
    most in its derivative (A. A. Markov, 1889).
    """
    if own.error == 0 or own.error == inf:
        return own.error == inf
    inquiry = own.inquiry
    bounds = inquiry.gradient_bounds(inquiry.loosest, grads)
    if any(
        b is not None and np.shape(g) != b.value.shape
        for g, b in zip(gradients, bounds, strict=True)
    ):
        return False
    pulled = sum(float(np.sum(np.abs(dy.astype(np.float64)))) for dy in grads if dy is not None)
    return largest_error(bounds, gradients) <= DEGREE**2 * own.error * pulled
