"""Is a property broken, or is the result wrong without it, too? The backend against itself.

A check of a property varies a call: another layout of memory, more samples, other calls before.
Where the result of that is wrong, the same values are given in a plain call. The property is
broken if the two results differ by more than both may err: by twice the bar, or twice the error of
the forward on data like these, where that is larger. Otherwise the forward is wrong, which the
check of the forward says once, for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from d5test.case import Arrays
from d5test.checks.check import Inquiry
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds
from d5test.numerics.judgement import judge
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

DATA_SETS = 9
"""The case's own data, and eight further sets: one alone may be right by chance."""

Outputs = Sequence[Any]


def forward_is_wrong(inquiry: Inquiry) -> Inapplicable:
    """What is said of a case on which nothing but the forward can be judged."""
    name = inquiry.case.op.name
    return Inapplicable(f"{name} is wrong in a plain call: only the forward check accuses it")


class OwnForward:
    """The forward of the backend in plain calls, on the case's data and others like them."""

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry

    @cached_property
    def faults(self) -> list[Fault]:
        """What is wrong with it."""
        inquiry, case = self.inquiry, self.inquiry.case
        seeds = range(case.seed, case.seed + DATA_SETS) if case.random else [case.seed]
        feeds = [inquiry.feed(replace(case, seed=seed).arrays()) for seed in seeds]
        try:
            results = inquiry.ask(*feeds)
        except Fault as fault:
            return [fault]
        found = (self._wrong(f, r.outputs) for f, r in zip(feeds, results, strict=True))
        return [fault for fault in found if fault is not None and fault.kind != "arithmetic"]

    @cached_property
    def off(self) -> float:
        """By how many bars at worst: 1 where it is right, infinite if it is no inaccuracy."""
        judgements = [fault.judgement for fault in self.faults]
        if any(j is None or j.explained == 0 for j in judgements):
            return inf
        return max([1.0, *(j.ratio for j in judgements if j is not None)])

    def right(self, arrays: Arrays) -> bool:
        """Whether a plain call on `arrays` gives what the forward is otherwise good for."""
        (result,) = self.inquiry.ask(self.inquiry.feed(arrays))
        bounds = self.inquiry.forward_bounds(self.inquiry.classes()[-1], arrays)
        return judge(_wider(bounds, self.off), result.outputs).right

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

        The fault itself, if the property is broken. `Inapplicable` where the forward is wrong on
        ordinary data. A fault of kind `value` where it is wrong on these alone.
        """
        inquiry = self.inquiry
        if not inquiry.client.renew():
            inquiry.client.reset()
        (result,) = inquiry.ask(plain)
        value = self._wrong(plain, result.outputs)
        misshapen = value is not None and value.judgement is None
        if misshapen or fault.judgement is None:
            return forward_is_wrong(inquiry) if misshapen else fault
        # what no inaccuracy explains, and is right in a plain call, needs no measure of that
        certain = value is None and fault.judgement.explained == 0
        times = 1.0 if certain else self.off
        expected = _about(bounds(inquiry.classes()[-1]), arrange(result.outputs))
        if times < inf and not judge(_wider(expected, 2 * times), got).right:
            return fault
        if self.faults:
            return forward_is_wrong(inquiry)
        same = fault.evidence, fault.judgement
        return value or inquiry.subject.fault("value", "the result is wrong", *same)

    def _wrong(self, feed: Any, outputs: Outputs) -> Fault | None:
        """The fault of a plain call, if it is one."""
        try:
            self.inquiry.held(
                lambda arithmetic: self.inquiry.forward_bounds(arithmetic, feed.inputs),
                outputs, (feed,), kind="value", what="the result is wrong",
            )  # fmt: skip
        except Fault as fault:
            return fault
        return None


def _about(bounds: Bounds, values: Outputs) -> Bounds:
    """The same bars about other values."""
    return tuple(
        None if bound is None or y is None else replace(bound, value=np.asarray(y))
        for bound, y in zip(bounds, values, strict=False)
    )


def _wider(bounds: Bounds, times: float) -> Bounds:
    return tuple(None if b is None else replace(b, bar=times * b.bar) for b in bounds)
