"""Forward and gradient against the reference's bars, in full and in low precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from d5test.case import Case
from d5test.checks.check import Inquiry
from d5test.numerics.judgement import Judgement


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
    inquiry.held(
        inquiry.forward_bounds,
        result.outputs,
        (feed,),
        kind="value",
        what="the outputs are wrong when a gradient is asked for",
        claim="computed",
    )
    return inquiry.judged(
        lambda arithmetic: inquiry.gradient_bounds(arithmetic, grads),
        inquiry.gradients(result),
        (feed,),
        kind="gradient",
        what="the gradient is wrong",
        grads=grads,
    )
