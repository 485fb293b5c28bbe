"""Forward and gradient against the reference's bars, in full and in low precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from d5test.case import Case
from d5test.checks.check import Inquiry
from d5test.checks.own_forward import OwnForward, forward_is_wrong
from d5test.client.client import Feed
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

DERIVATIVE = 8
"""Bits that a derivative may lose: approximations are of a degree of 16 at most."""


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
    forward = _wrong_forward(inquiry, feed, result.outputs)
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
        if forward is not None and _follows(fault, forward):
            raise forward_is_wrong(inquiry) from None
        raise


def _wrong_forward(inquiry: Inquiry, feed: Feed, outputs: tuple[Any, ...]) -> Fault | None:
    """The fault of the outputs, if they are as wrong when no gradient is asked for."""
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
        plain = inquiry.feed()
        cause = OwnForward(inquiry).cause(fault, outputs, inquiry.forward_bounds, plain)
        if not isinstance(cause, Inapplicable):
            raise cause from None
        return fault
    return None


def _follows(fault: Fault, forward: Fault) -> bool:
    """Whether a wrong gradient follows from a wrong forward.

    It does from another function. An approximation's derivative has fewer right bits than the
    approximation, by at most those of the square of a polynomial's degree (A. A. Markov, 1889).
    """
    if forward.judgement is None or not forward.judgement.explained:
        return True
    if fault.judgement is None or fault.judgement.explained is None:
        return False
    return fault.judgement.explained >= max(forward.judgement.explained - DERIVATIVE, 1)
