"""Is a property broken, or is the result wrong without it, too? The backend against itself.

A check of a property varies a call: another layout of memory, more samples, other calls before.
Where the result of that is wrong, the same values are given in a plain call. The property is
broken if the two results differ by more than both may err: by twice the bar, or twice the error of
the forward on data like these, where that is larger. Otherwise the forward is wrong, which the
check of the forward says once, for all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import inf, isfinite
from typing import Any

import numpy as np

from d5test.case import Arrays, Case
from d5test.checks.inquiry import Inquiry, drawn_inputs
from d5test.client.history import before
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds
from d5test.numerics.judgement import Judgement, judge, pairs
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

FURTHER = 8
"""Sets of data besides the case's own, which may be right by chance."""

Outputs = Sequence[Any]


def forward_is_wrong(inquiry: Inquiry) -> Inapplicable:
    """What is said of a case on which nothing but the forward can be judged."""
    return inquiry.left_to("forward", f"{inquiry.case.op.name} is wrong in a plain call")


class OwnForward:
    """The forward of the backend in plain calls, on the case's data and others like them."""

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry
        self.alone: Outputs | None = None
        """Of the last plain call that a fresh worker was asked, before any other."""

    @cached_property
    def calls(self) -> list[tuple[Any, Outputs]]:
        """Feeds and outputs."""
        inquiry = self.inquiry
        feeds = [inquiry.feed(arrays) for arrays in (inquiry.arrays, *_further(inquiry.case))]
        results = inquiry.ask(*feeds)
        return [(feed, result.outputs) for feed, result in zip(feeds, results, strict=True)]

    @cached_property
    def faults(self) -> list[Fault]:
        """What is wrong with it."""
        try:
            faults = [self._wrong(feed, outputs) for feed, outputs in self.calls]
        except Fault as fault:
            if fault.kind != "exception":
                raise
            return [fault]
        return [fault for fault in faults if fault is not None]

    @cached_property
    def off(self) -> float:
        """By how many bars at worst: 1 where it is right, infinite if it is no inaccuracy."""
        judgements = [fault.judgement for fault in self.faults]
        if any(j is None or j.explained == 0 for j in judgements):
            return inf
        return max([1.0, *(j.ratio for j in judgements if j is not None)])

    @cached_property
    def error(self) -> float:
        """The largest error: 0 where it is right, infinite if it is no inaccuracy."""
        if not self.faults or self.off == inf:
            return inf if self.faults else 0.0
        bounds = partial(self.inquiry.forward_bounds, self.inquiry.loosest)
        return max(largest_error(bounds(feed.inputs), outputs) for feed, outputs in self.calls)

    def right(self, arrays: Arrays) -> bool:
        """Whether a plain call on `arrays` gives what the forward is otherwise good for."""
        (result,) = self.inquiry.ask(self.inquiry.feed(arrays))
        bounds = self.inquiry.forward_bounds(self.inquiry.loosest, arrays)
        return judge(_wider(bounds, self.off), result.outputs).right

    def judged(
        self,
        bounds: Callable[[Arithmetic], Bounds],
        got: Outputs,
        feeds: tuple[Any, ...],
        plain: Any,
        arrange: Callable[[Outputs], Outputs] = tuple,
        **more: Any,
    ) -> Judgement:
        """As `Inquiry.held`, of the outputs of a varied call; raises the `cause` of a fault."""
        try:
            judgement, _ = self.inquiry.held(bounds, got, feeds, **more)
        except Fault as fault:
            raise self.cause(fault, got, bounds, plain, arrange) from None
        return judgement

    def cause(
        self,
        fault: Fault,
        got: Outputs,
        bounds: Callable[[Arithmetic], Bounds],
        plain: Any,
        arrange: Callable[[Outputs], Outputs] = tuple,
    ) -> Exception:
        """What to raise of a `fault` of the outputs `got` of a varied call.

        bounds   of `got`
        plain    the feed of the plain call, before which all others are forgotten
        arrange  makes of its outputs what `got` should be

        The fault itself, if the property is broken; that of the plain call, if it is right at
        first and wrong when it is repeated, or wrong after what was called before this case.
        `Inapplicable` where the forward is wrong on ordinary data. A fault of kind `value` where
        it is wrong on these alone.
        """
        inquiry = self.inquiry
        # of several calls, what an earlier one leaves is what they are asked for
        late = self._late(plain) if len(fault.evidence.feeds) == 1 else None
        fresh = inquiry.client.renew()
        if not fresh:
            inquiry.client.reset()
        (result,) = inquiry.ask(plain)
        self.alone = result.outputs if fresh else None
        value = self._wrong(plain, result.outputs)
        if value is None and late is not None:
            return self._unsteady(plain) or late
        misshapen = value is not None and value.judgement is None
        if misshapen or fault.judgement is None:
            return forward_is_wrong(inquiry) if misshapen else fault
        # what no inaccuracy explains, and is right in a plain call, needs no measure of that
        certain = value is None and fault.judgement.explained == 0
        times = 1.0 if certain else self.off
        expected = tuple(
            None if bound is None or y is None else replace(bound, value=np.asarray(y))
            for bound, y in zip(bounds(inquiry.loosest), arrange(result.outputs), strict=False)
        )
        if times < inf and not judge(_wider(expected, 2 * times), got).right:
            return fault if value else self._unsteady(plain) or fault
        if self.faults:
            return forward_is_wrong(inquiry)
        same = fault.evidence, fault.judgement
        return value or inquiry.subject.fault("value", "the result is wrong", *same)

    def _late(self, plain: Any) -> Fault | None:
        """The fault that a plain call is wrong in a worker that has answered other calls."""
        inquiry = self.inquiry
        (result,) = inquiry.ask(plain)
        wrong = self._wrong(plain, result.outputs)
        if wrong is None:
            return None
        what = "the result is wrong after earlier calls"
        fault = inquiry.subject.fault("value", what, wrong.evidence, wrong.judgement)
        fault.before = before(inquiry.client, inquiry.case)
        return fault

    def _unsteady(self, plain: Any) -> Fault | None:
        """The fault that a plain call is wrong as soon as it is repeated."""
        feeds = (plain,) * 3
        for result in self.inquiry.ask(*feeds, claim="repeats"):
            if self._wrong(plain, result.outputs):
                what = "the same call gives other outputs"
                return self.inquiry.fault("nondeterministic", what, feeds, "repeats")
        return None

    def _wrong(self, feed: Any, outputs: Outputs) -> Fault | None:
        """The fault of a plain call, if it is one."""
        try:
            self.inquiry.held(
                partial(self.inquiry.forward_bounds, arrays=feed.inputs), outputs, (feed,),
                kind="value", what="the result is wrong",
            )  # fmt: skip
        except Fault as fault:
            return fault
        return None


def _further(case: Case) -> Iterator[Arrays]:
    """Data between the least and the largest of the case's own: nothing is exact by chance."""
    if not case.random:
        return
    tensors, arrays = list(case.inputs), case.arrays()
    for i, tensor in drawn_inputs(case):
        x = arrays[i]
        if x is not None and x.size:
            low, high = float(x.min()), float(x.max())
            low = low / 2 if low == high else low
            if isfinite(low) and isfinite(high):
                tensors[i] = replace(tensor, values=("uniform", low, high))
    for seed in range(case.seed + 1, case.seed + 1 + FURTHER):
        yield replace(case, inputs=tuple(tensors), seed=seed).arrays()


def largest_error(bounds: Bounds, results: Outputs) -> float:
    """The largest |got - want| of what is judged; infinite if one of them is no number."""
    worst = 0.0
    for _, bound, got in pairs(bounds, results):
        if bound.judged.any():
            with np.errstate(all="ignore"):
                error = np.abs(np.asarray(got).astype(np.float64) - bound.exact)[bound.judged]
            worst = max(worst, float(np.max(np.where(np.isfinite(error), error, inf))))
    return worst


def _wider(bounds: Bounds, times: float) -> Bounds:
    return tuple(None if b is None else replace(b, bar=times * b.bar) for b in bounds)
