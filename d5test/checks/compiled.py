"""Compiled modes: right, and proved to have been compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from d5test.case import Case
from d5test.checks.check import Inquiry
from d5test.checks.own_forward import OwnForward
from d5test.checks.shape import BATCHES, Crowd
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Evidence, Fault
from d5test.outcome.tally import Inapplicable


def compiled(client: Any, case: Case) -> Judgement:
    """Compiled code gives results within the bars of the reference, and no eager fallback.

    What was compiled before is forgotten first; the call must have compiled something. Then a
    second call, with values of its own, must not get the first one's results; nor may a third one,
    with more samples, run code that was compiled for fewer.
    """
    inquiry = Inquiry("compiled", client, case)
    client.reset()
    again = replace(case, seed=case.seed + 1)
    feeds = (inquiry.feed(), inquiry.feed(again.arrays()))
    first, second = inquiry.ask(*feeds)
    if not client.compilations():
        raise inquiry.subject.fault(
            "not compiled", "nothing was compiled", Evidence(feeds, "returns", wanted=case.wanted)
        )
    judgement = inquiry.judged(inquiry.forward_bounds, first.outputs, feeds[:1])
    _followed(
        inquiry, feeds, second.outputs, "the second call is wrong",
        lambda arithmetic: inquiry.forward_bounds(arithmetic, again.arrays()),
    )  # fmt: skip
    _another_shape(inquiry)
    if inquiry.row.gradient or not case.op.differentiable:
        return judgement
    grads = inquiry.upstream
    feed = inquiry.feed(grads=grads)
    (result,) = inquiry.ask(feed)
    gradient = inquiry.judged(
        lambda arithmetic: inquiry.gradient_bounds(arithmetic, grads),
        inquiry.gradients(result), (feed,), kind="gradient", what="the gradient is wrong",
        grads=grads,
    )  # fmt: skip
    return max(judgement, gradient, key=lambda j: j.ratio)


def _another_shape(inquiry: Inquiry) -> None:
    """Code that was compiled for a shape, then called with more samples."""
    try:
        crowd = Crowd(inquiry, BATCHES[0])
    except Inapplicable:
        return
    feeds = (inquiry.feed(), crowd.feed)
    _, result = inquiry.ask(*feeds)
    _followed(inquiry, feeds, result.outputs, "a call of another shape is wrong", crowd.bounds)


def _followed(
    inquiry: Inquiry,
    feeds: tuple[Any, ...],
    outputs: tuple[Any, ...],
    what: str,
    bounds: Callable[[Arithmetic], Bounds],
) -> None:
    """The last of `feeds` gets its own outputs, though others came before it."""
    try:
        inquiry.judged(bounds, outputs, feeds, kind="cached", what=what, last=True)
    except Fault as fault:
        raise OwnForward(inquiry).cause(fault, outputs, bounds, feeds[-1]) from None
