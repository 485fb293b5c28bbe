"""Forward and gradient against the reference's bars: in full and low precision, compiled, timed.

What was timed is judged by the same bars, as far as that is affordable: a recurrence of many steps
by the ensemble; of a problem too large to repeat in NumPy, as many independent samples as are
affordable, and the share says so.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case
from d5test.checks.arguments import BATCHES, Crowd
from d5test.checks.inquiry import Inquiry
from d5test.checks.own_forward import OwnForward, forward_is_wrong, largest_error
from d5test.checks.special import special
from d5test.client.messages import Feed
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds, forward_bounds, gradient_bounds
from d5test.numerics.ensemble import MEMBERS, ensemble_bounds, norm_ratio
from d5test.numerics.judgement import Judgement, judge, pairs, tightest
from d5test.numerics.proof import prove_backward
from d5test.outcome.fault import NO_CALLS, Fault
from d5test.outcome.tally import Inapplicable
from d5test.reference.operators.recurrent import Recurrent

DEGREE = 16
"""The largest of the polynomials by which functions are approximated."""
STEPS = 16
"""Recurrences of more steps are judged by the ensemble: a bar grows exponentially with them."""
AFFORDABLE = 2 * 10**9
"""Scalar multiplications of the reference: a second or so in NumPy, several with bars."""


def forward(client: Any, case: Case) -> Judgement:
    """Every element of every output lies within its bar."""
    inquiry = Inquiry("forward", client, case)
    feed = inquiry.feed()
    (result,) = inquiry.ask(feed, ahead=[inquiry.forward_bounds])
    return inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))


def gradient(client: Any, case: Case) -> Judgement:
    """Every element of every gradient, under the case's upstream ones, lies within its bar."""
    inquiry = Inquiry("gradient", client, case)
    return _gradient(inquiry, inquiry.feed(grads=inquiry.upstream))


def low_precision(client: Any, case: Case) -> Judgement:
    """As `forward` and `gradient`, in the tightest arithmetic class that holds both."""
    return _both(Inquiry("low_precision", client, case))


def forms(client: Any, case: Case) -> Judgement:
    """As `forward` and `gradient`, of another call that computes what the operator's row does.

    A user's own row under a transformation is left to these where it is wrong without one as well,
    and may raise: nobody says that it can be transformed.
    """
    inquiry = Inquiry("forms", client, case)
    try:
        return _both(inquiry)
    except Fault as fault:
        if inquiry.row.transformed and not inquiry.row.ours:
            if fault.kind == "exception":
                raise Unsupported(fault.details.get("raised", fault.headline)) from None
            _require_plain(Inquiry("forms", client, replace(case, form="")))
        raise


def _require_plain(inquiry: Inquiry) -> None:
    """Raise `Inapplicable` where a plain call is wrong already."""
    try:
        _both(inquiry)
    except Fault as fault:
        check = "gradient" if fault.kind == "gradient" else "forward"
        wrong = f"{inquiry.case.op.name} is wrong in a plain call"
        raise inquiry.left_to(check, wrong) from None


def _both(inquiry: Inquiry) -> Judgement:
    """The judgement of outputs and gradients."""
    feed, pulled = inquiry.feed(), None
    if inquiry.flows:
        pulled = inquiry.feed(grads=inquiry.upstream)
        bounds = partial(inquiry.gradient_bounds, grads=pulled.grads)
        inquiry.ask_together(feed, pulled, ahead=[inquiry.forward_bounds, bounds])
    (result,) = inquiry.ask(feed, ahead=[inquiry.forward_bounds])
    outputs = inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))
    if pulled is None:
        return outputs
    try:
        gradients = _gradient(inquiry, pulled)
    except Inapplicable:
        if not outputs.model:
            raise
        return outputs  # of another shape by an error model: no upstream gradient fits it
    worse = max(outputs, gradients, key=lambda j: (j.arithmetic, j.ratio))
    return replace(
        worse,
        telling=outputs.telling or gradients.telling,
        void=outputs.void and gradients.void,
        share=min(outputs.share, gradients.share),
        shares={**outputs.shares, **gradients.shares},
        rounding=outputs.rounding,
    )


def compiled(client: Any, case: Case) -> Judgement:
    """Compiled code gives results within the bars of the reference, and no eager fallback.

    What was compiled before is forgotten first; the call must have compiled something. Then a
    second call, with values of its own, must not get the first one's results; nor may a third one,
    with more samples, run code that was compiled for fewer. NaN and infinity go where they should,
    too: a compiler may take them for what does not happen.
    """
    inquiry = Inquiry("compiled", client, case)
    client.reset()
    arrays = replace(case, seed=case.seed + 1).arrays()
    feeds = (inquiry.feed(), inquiry.feed(arrays))
    first, second = inquiry.ask(*feeds)
    if not client.compilations():
        raise inquiry.fault("not compiled", "nothing was compiled", feeds, "returns")
    judgement = inquiry.judged(inquiry.forward_bounds, first.outputs, feeds[:1])
    OwnForward(inquiry).judged(
        partial(inquiry.forward_bounds, arrays=arrays), second.outputs, feeds, feeds[-1],
        kind="cached", what="the second call is wrong", last=True,
    )  # fmt: skip
    _another_shape(inquiry)
    if case.pullable and not case.op.sized_by_values and not case.op.typed:
        special(client, case, "compiled")
    if not inquiry.flows:
        return judgement
    feed = inquiry.feed(grads=inquiry.upstream)
    (result,) = inquiry.ask(feed)
    gradients = inquiry.judged_gradient(result, feed)
    return max(judgement, gradients, key=lambda j: j.ratio)


def _gradient(inquiry: Inquiry, feed: Any) -> Judgement:
    """The judgement of the gradients of a call."""
    grads = feed.grads
    bounds = partial(inquiry.gradient_bounds, grads=grads)
    (result,) = inquiry.ask(feed, ahead=[inquiry.forward_bounds, bounds])
    own = OwnForward(inquiry)
    wrong = wrong_with_gradient(own, feed, result.outputs)
    try:
        judgement = inquiry.judged_gradient(result, feed)
    except Fault as fault:
        slight = fault.judgement is not None and fault.judgement.explained != 0
        if (wrong or slight) and _follows(inquiry.gradients(result), own, grads):
            raise forward_is_wrong(inquiry) from None
        raise
    gradients = inquiry.gradients(result)
    shares = inquiry.by_any(lambda arithmetic: _adds_up(inquiry, arithmetic, gradients, grads))
    return replace(judgement, model=judgement.model or shares.model)


def _adds_up(
    inquiry: Inquiry, arithmetic: Arithmetic, gradients: Sequence[Any], grads: Arrays
) -> Judgement:
    """Right, or the fault that gradients do not add up to the upstream gradient, as they should.

    At a tie a bar holds every share that one element may have, but they are shares of one whole.
    The element that may have the largest is called wrong: the others lie within their bars.
    """
    shared = (
        inquiry.operator(arithmetic).follows_shifts and inquiry.wanted == inquiry.case.pullable
    )
    if not shared or not all(map(np.size, gradients)):
        return Judgement()
    upstream = np.concatenate([dy.ravel().astype(float) for dy in grads if dy is not None])
    flows_in, flows_out = upstream.sum(), sum(dx.astype(float).sum() for dx in gradients)
    excess = float(flows_out - flows_in)
    # each upstream number is rounded when it is shared, and in each sum that it is a term of; the
    # number of equal elements is a sum, too
    shares = max(dx.size for dx in gradients) // max(upstream.size, 1)
    counted = max(each.sum_error(shares) for each in (inquiry.allowed, arithmetic))
    error = inquiry.allowed.storage.u * (2 + upstream.size) + counted
    rounded = upstream.size + sum(dx.size for dx in gradients)
    bar = error * float(np.abs(upstream).sum()) + rounded * inquiry.allowed.eta
    # a share may be subnormal, and off by as much as it is when it is stored
    own = inquiry.gradient_bounds(arithmetic, grads)
    stored = sum(np.count_nonzero(bound.bar) for _, bound, _ in pairs(own, gradients))
    bar += stored * inquiry.allowed.storage.smallest_subnormal
    if abs(excess) <= bar:
        return Judgement()
    bounds = inquiry.gradient_bounds(inquiry.loosest, grads)
    k, bound, dx = max(pairs(bounds, gradients), key=lambda of: of[1].bar.max())
    at = np.unravel_index(bound.bar.argmax(), bound.bar.shape)
    value, bars = np.array(bound.exact), np.array(bound.bar)
    value[at], bars[at] = float(dx[at]) - excess, bar
    expected = (*bounds[:k], replace(bound, value=value, bar=bars), *bounds[k + 1 :])
    prove_backward(inquiry.case, inquiry.arrays, grads)
    raise inquiry.fault(
        "gradient", "the gradients of equal elements do not add up to the upstream gradient",
        (inquiry.feed(grads=grads),), "within", replace(judge(expected, gradients), explained=0),
        (expected,), sums=f"{flows_out:.7g} of the gradients, {flows_in:.7g} of the upstream one",
    )  # fmt: skip


def wrong_with_gradient(
    own: OwnForward, feed: Feed, outputs: tuple[Any, ...], asked: str = "a gradient"
) -> bool:
    """Whether the outputs are wrong, and as wrong when no gradient is asked for."""
    inquiry = own.inquiry
    try:
        inquiry.held(
            inquiry.forward_bounds, outputs, (feed,), kind="value", claim="computed",
            what=f"the outputs are wrong when {asked} is asked for",
        )  # fmt: skip
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
    if any(np.shape(g) != b.value.shape for _, b, g in pairs(bounds, gradients)):
        return False
    pulled = sum(float(np.sum(np.abs(dy.astype(np.float64)))) for dy in grads if dy is not None)
    return largest_error(bounds, gradients) <= DEGREE**2 * own.error * pulled


def _another_shape(inquiry: Inquiry) -> None:
    """Code that was compiled for a shape, then called with more samples."""
    try:
        crowd = Crowd(inquiry, BATCHES[0])
    except Inapplicable:
        return
    feeds = (inquiry.feed(), crowd.feed)
    _, result = inquiry.ask(*feeds)
    OwnForward(inquiry).judged(
        crowd.bounds, result.outputs, feeds, crowd.feed, kind="cached",
        what="a call of another shape is wrong", last=True,
    )  # fmt: skip


def verify(client: Any, case: Case, grads: Arrays | None, results: Sequence[Any]) -> Judgement:
    """The judgement of `results`: outputs, or with `grads` one gradient for each input."""
    return sampled(Inquiry("time", client, case), grads, results)


def sampled(
    inquiry: Inquiry, grads: Arrays | None, results: Sequence[Any],
    affordable: int = AFFORDABLE, passes: int = 0,
) -> Judgement:  # fmt: skip
    """The judgement of `results`, of as many samples as so many multiplications afford.

    An element of an input or a result counts as so many `passes`.
    """
    case = inquiry.case
    classes = [replace(a, independent=True) for a in inquiry.attempts()]
    first = case.shapes[0]
    assert first is not None
    many = isinstance(case.op, Recurrent) and first[case.op.layout] > STEPS
    runs = 1 + MEMBERS if many else 1
    part = Part(case, inquiry.arrays, grads, results, runs, affordable, passes)
    if many:
        bounds = ensemble_bounds(case.op, part.arrays, part.grads, classes[0])
        judgement = judge(bounds, part.results)
        ratio = max(judgement.ratio, norm_ratio(bounds, part.results))
        return replace(judgement, ratio=ratio, share=judgement.share * part.share)

    def bounds_in(arithmetic: Arithmetic) -> Bounds:
        op = inquiry.operator(arithmetic)
        if part.grads is None:
            bounds = forward_bounds(op, part.arrays, arithmetic)
        else:
            bounds = gradient_bounds(op, part.arrays, part.grads, arithmetic)
        for k, bound, got in pairs(bounds, part.results):
            if bound.value.shape != got.shape:
                what, want = f"result {k} has the wrong shape", str(bound.value.shape)
                raise inquiry.subject.fault("shape", what, NO_CALLS, got=str(got.shape), want=want)
        return bounds

    judgement, _ = tightest(classes, bounds_in, part.results)
    return replace(judgement, share=judgement.share * part.share)


class Part:
    """As many samples of a problem as are affordable: all of them, if they are.

    Gradients of what the samples share, the weights, need all samples: they are left out then.
    """

    def __init__(
        self, case: Case, arrays: Arrays, grads: Arrays | None, results: Sequence[Any],
        runs: int, affordable: int, passes: int,
    ) -> None:  # fmt: skip
        self.arrays, self.grads, self.results, self.share = arrays, grads, tuple(results), 1.0
        elements = sum(np.size(x) for x in (*arrays, *results) if x is not None)
        work = max(case.op.multiplications(*case.shapes) or 0, passes * elements) * runs
        work *= 1 if grads is None else 3
        batch = case.op.batch(*case.shapes)
        if work <= affordable or batch is None:
            return
        pairs = zip(case.shapes, batch.inputs, strict=False)
        size = next(s[a] for s, a in pairs if s and a is not None)
        count = max(1, size * affordable // work)
        inputs = batch.inputs + (None,) * (len(arrays) - len(batch.inputs))
        self.arrays = _first(arrays, inputs, count)
        if grads is None:
            self.results = _first(results, batch.outputs, count)
            self.share = count / size
        else:
            self.grads = _first(grads, batch.outputs, count)
            separate = tuple(
                r if a is not None else None for r, a in zip(results, inputs, strict=True)
            )
            self.results = _first(separate, inputs, count)
            elements = sum(np.size(r) for r in results if r is not None)
            self.share = sum(np.size(r) for r in self.results if r is not None) / elements


def _first(arrays: Sequence[Any], axes: Sequence[int | None], count: int) -> tuple[Any, ...]:
    """The first samples of the arrays that have them."""
    return tuple(
        x if x is None or axis is None else np.take(x, range(count), axis)
        for x, axis in zip(arrays, axes, strict=False)
    )
