"""Memory layouts, empty and scalar shapes, and the size of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case, Operator
from d5test.checks.check import Inquiry
from d5test.checks.own_forward import OwnForward
from d5test.checks.reasons import Why, supported
from d5test.client.messages import BackendInfo
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bound, Bounds
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

BATCHES = (17, 33)
"""Batch sizes that no ordinary case has: beyond a vector, and beyond two of them."""


def layout(client: Any, case: Case) -> Judgement:
    """The same values in another layout of memory give results within the same bars."""
    inquiry = Inquiry("layout", client, case)
    layouts = [name for name in inquiry.about.layouts if name != "contiguous"]
    judgement, reasons = Judgement(), []
    for name in layouts:
        arrays = _broadcast(case, inquiry.arrays) if name == "broadcast" else inquiry.arrays
        feed = inquiry.feed(arrays, layouts=tuple(
            name if i in case.wanted else "contiguous" for i in range(len(case.inputs))
        ))  # fmt: skip
        try:
            (result,) = inquiry.ask(feed)
        except Unsupported as unsupported:
            reasons.append(f"{name}: {unsupported}")
            continue

        def bounds(arithmetic: Arithmetic, arrays: Arrays = arrays) -> Bounds:
            return inquiry.forward_bounds(arithmetic, arrays)

        try:
            found = inquiry.judged(
                bounds, result.outputs, (feed,), kind="layout", what=f"{name} inputs are misread"
            )
        except Fault as fault:
            plain = inquiry.feed(arrays)
            raise OwnForward(inquiry).cause(fault, result.outputs, bounds, plain) from None
        judgement = max(judgement, found, key=lambda j: j.ratio)
    if len(reasons) == len(layouts):
        raise Unsupported("; ".join(reasons))
    return judgement


def has_layouts(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and the backend has memory layouts."""
    if tuple(about.layouts) == ("contiguous",):
        return Unsupported(f"{about.name} has no memory layouts")
    return supported(operator, about, dtype)


def _broadcast(case: Case, arrays: Arrays) -> Arrays:
    """Values that are constant along the first axis, as a stride of 0 makes them."""
    changed = [
        np.broadcast_to(a[:1], a.shape).copy()
        if i in case.wanted and a is not None and a.ndim
        else a
        for i, a in enumerate(arrays)
    ]
    for i, tensor in enumerate(case.inputs):
        if tensor is not None and tensor.same_as is not None:
            changed[i] = changed[tensor.same_as]
    return tuple(changed)


def degenerate_cases(operator: Any, dtype: str) -> SearchStrategy[Case]:
    """Cases with sizes of zero and one."""
    from d5test.strategies import cases

    return cases(operator, dtype, degenerate=True)


def degenerate(client: Any, case: Case) -> Judgement:
    """Empty, scalar and size-one tensors give results of the right shape and value.

    A framework may refuse them with a clean exception, which counts as unsupported. What the
    reference itself refuses (the maximum of nothing) is no case.
    """
    inquiry = Inquiry("degenerate", client, case)
    feed = inquiry.feed()
    try:
        outputs = inquiry.outputs
    except ValueError as refused:
        raise Inapplicable(f"the reference refuses it: {refused}") from None
    try:
        (result,) = inquiry.ask(feed)
    except AssertionError as fault:
        if getattr(fault, "kind", "") not in ("exception", "row"):
            raise
        raise Unsupported(f"refused: {getattr(fault, 'details', {}).get('raised', '')}") from None
    if all(np.size(y) == 0 for y in outputs):
        return inquiry.shapes_only(result.outputs, feed)
    return inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))


def batch(client: Any, case: Case) -> Judgement:
    """A sample's result does not depend on how many others share the batch, nor on their place."""
    inquiry = Inquiry("batch", client, case)
    judgement = Judgement()
    for count in BATCHES:
        crowd = Crowd(inquiry, count)
        (result,) = inquiry.ask(crowd.feed)
        try:
            found = inquiry.judged(
                crowd.bounds, result.outputs, (crowd.feed,), kind="batch",
                what=f"in a batch of {count}, samples differ from what they are alone",
            )  # fmt: skip
        except Fault as fault:
            plain = inquiry.feed()
            raise OwnForward(inquiry).cause(
                fault, result.outputs, crowd.bounds, plain, crowd.arranged
            ) from None
        judgement = max(judgement, found, key=lambda j: j.ratio)
    return replace(judgement, void=False)


class Crowd:
    """The case with `count` samples: its own from last to first, again and again.

    Raises `Inapplicable` where samples depend on each other.
    """

    def __init__(self, inquiry: Inquiry, count: int) -> None:
        self.inquiry = inquiry
        case, arrays = inquiry.case, inquiry.arrays
        axes = case.op.batch(*case.shapes)
        if axes is None:
            raise Inapplicable("samples in this batch interact; the batch check does not apply")
        self.axes = axes
        size = next(
            a.shape[axis]
            for a, axis in zip(arrays, axes.inputs, strict=False)
            if a is not None and axis is not None
        )
        self.order = np.arange(count)[::-1] % size
        taken = [
            a if a is None or axis is None else np.ascontiguousarray(np.take(a, self.order, axis))
            for a, axis in zip_longest(arrays, axes.inputs)
        ]
        for i, tensor in enumerate(case.inputs):
            if tensor is not None and tensor.same_as is not None:
                taken[i] = taken[tensor.same_as]
        self.feed = inquiry.feed(tuple(taken))

    def bounds(self, arithmetic: Arithmetic) -> Bounds:
        """The bars that the samples have alone, for each place in the crowd.

        None for outputs of which the operator does not say where its samples are (MaxPool's
        indices).
        """
        alone = self.inquiry.forward_bounds(arithmetic)
        values = self.arranged([None if b is None else b.value for b in alone])
        bars = self.arranged([None if b is None else b.bar for b in alone])
        return tuple(
            None if b is None or value is None else Bound(value, bar, b.storage)
            for b, value, bar in zip(alone, values, bars, strict=True)
        )

    def arranged(self, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of the samples alone, for each place in the crowd."""
        known = len(self.axes.outputs)
        return tuple(
            None if y is None else y if axis is None else np.take(y, self.order, axis)
            for y, axis in zip(outputs[:known], self.axes.outputs, strict=False)
        ) + (None,) * (len(outputs) - known)
