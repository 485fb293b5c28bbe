"""Forward mode and second derivatives against the reference on dual numbers of bars.

While the inputs move in a random direction, the outputs have to move by J t and the gradients by
H v, the derivative of `backward`. At a kink or a tie any of its sides is right, and none is judged
where they are infinitely far apart. Inputs that have no gradient do not move. In every other case
inputs are not contiguous, where the framework has layouts.

A framework's formula may be another one than the reference's: where a result is outside of its
bars, these are widened so that they hold what another gives, too (`by_rows`, `by_other_formulas`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case, Operator, Tensor
from d5test.checks.arguments import laid_out, places
from d5test.checks.check import Why, with_gradient
from d5test.checks.inquiry import Inquiry
from d5test.checks.own_forward import OwnForward, forward_is_wrong
from d5test.checks.value import wrong_with_gradient
from d5test.client.messages import BackendInfo, Result
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds, double
from d5test.numerics.derivatives import (
    by_other_formulas,
    by_rows,
    lower_slopes,
    lower_tangents,
    slope_bounds,
    tangent_bounds,
    widened,
)
from d5test.numerics.judgement import Judgement, judge, rejects, telling
from d5test.numerics.proof import prove_backward, prove_slopes
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

Layouts = tuple[str, ...] | None
LAYOUTS = ("", "transposed", "", "strided")
"""Of the inputs, case by case; contiguous where there is no name."""
FAULTS = {
    "forward_mode": ("tangent", "the derivative by forward mode is wrong"),
    "second_gradient": ("second gradient", "the second derivative is wrong"),
}
"""Of each check the kind of its fault, and its words."""


def with_forward_mode(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `with_gradient`, and the backend has forward mode."""
    if "jvp" not in about.derivatives:
        return Unsupported(f"{about.name} has no forward mode here")
    return _differentiable(operator, about) or with_gradient(operator, about, dtype)


def with_second_gradient(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `with_gradient`, and the backend differentiates twice."""
    if "hvp" not in about.derivatives:
        return Unsupported(f"{about.name} has no second derivatives here")
    return _differentiable(operator, about) or with_gradient(operator, about, dtype)


def _differentiable(operator: type[Operator], about: BackendInfo) -> Why:
    """Why a framework cannot differentiate an operator's own gradient; nothing if it can."""
    name = operator.__name__
    return (
        Unsupported(f"{name} is native code with one gradient") if name in about.sources else None
    )


def forward_mode(client: Any, case: Case) -> Judgement:
    """Each output moves as it should when the inputs move in a random direction."""
    return Derivative("forward_mode", client, case).wherever(_forward_mode)


def _forward_mode(inquiry: "Derivative", layouts: Layouts) -> Judgement:
    feed = inquiry.feed(tangents=inquiry.direction, layouts=layouts)
    moves = (inquiry.arrays, inquiry.direction)
    tangents = partial(inquiry.once, tangent_bounds, data=moves)
    result = inquiry.answer(feed, tangents)
    moved = tuple(
        np.zeros_like(y) if t is None else t
        for y, t in zip(result.outputs, result.gradients or (), strict=True)
    )

    def bounds(arithmetic: Arithmetic) -> Bounds:
        expected: Bounds = tangents(arithmetic)
        if not judge(expected, moved).right:
            others = by_rows(inquiry.operator(arithmetic), *moves, arithmetic)
            expected = widened(expected, others)
        return expected[: inquiry.row.outputs]

    lowered = partial(lower_tangents, inquiry.case.op, inquiry.arrays, inquiry.direction)
    return inquiry.derived(bounds, result, moved, feed, lowered)


def second_gradient(client: Any, case: Case) -> Judgement:
    """Each gradient moves as it should when the inputs move in a random direction."""
    return Derivative("second_gradient", client, case).wherever(_second_gradient)


def _second_gradient(inquiry: "Derivative", layouts: Layouts) -> Judgement:
    case, grads = inquiry.case, inquiry.upstream
    feed = inquiry.feed(grads=grads, tangents=inquiry.direction, layouts=layouts)
    moves = (inquiry.arrays, grads, inquiry.direction)
    second = partial(inquiry.once, slope_bounds, data=moves)
    result = inquiry.answer(feed, second)
    slopes = inquiry.gradients(result)

    def bounds(arithmetic: Arithmetic) -> Bounds:
        expected = inquiry.at_wanted(second(arithmetic))
        others = by_other_formulas(inquiry.operator(arithmetic), *moves, arithmetic)
        while not judge(expected, slopes).right and (other := next(others, None)) is not None:
            expected = widened(expected, inquiry.at_wanted(other))
        return expected

    def lowered(dtype: str) -> Arrays:
        every = lower_slopes(case.op, inquiry.arrays, grads, inquiry.direction, dtype)
        return tuple(every[i] for i in inquiry.wanted)

    return inquiry.derived(bounds, result, slopes, feed, lowered)


class Derivative(Inquiry):
    """One case, whose inputs move in a direction of the case's own."""

    @cached_property
    def wanted(self) -> tuple[int, ...]:
        """The inputs that move: those that have a gradient, here and there."""
        inputs = double(self.arrays)
        with np.errstate(all="ignore"):
            gradients = self.case.op.vjp(double(self.upstream), inputs)
        moving = tuple(i for i in super().wanted if gradients[i] is not None)
        if not moving:
            raise Inapplicable(f"no input of {self.case.op.name} has a gradient")
        return moving

    @cached_property
    def direction(self) -> Arrays:
        """How each input moves, `None` of one that does not, or stands there again."""
        return tuple(
            Tensor(x.shape, self.case.dtype).array(self.case.seed, 5000 + i)
            if x is not None and i in self.wanted
            else None
            for i, x in enumerate(self.arrays)
        )

    @cached_property
    def own(self) -> OwnForward:
        """The backend's forward in plain calls."""
        return OwnForward(self)

    def wherever(self, judged: Callable[["Derivative", Layouts], Judgement]) -> Judgement:
        """What is `judged` of inputs in some layout, which is accused if it alone is wrong."""
        case, at = self.case, places(self.case)
        name = LAYOUTS[case.seed // 8 % len(LAYOUTS)]
        if not at or name not in self.about.layouts:
            return judged(self, None)
        layouts = laid_out(case, name, at)
        try:
            return judged(self, layouts)
        except Unsupported:
            return judged(self, None)
        except Fault as fault:
            judged(self, None)
            if self.known.covers(case, "layout"):
                raise Inapplicable(f"{case.op.name} is known to be wrong in this layout") from None
            raise self._misread(fault, layouts, name, at) from None

    def _misread(self, fault: Fault, layouts: Layouts, name: str, at: tuple[int, ...]) -> Fault:
        """The fault of a layout: the forward's, where that is wrong in it, too."""
        kind, what = FAULTS[self.subject.check]
        which = "the inputs are" if len(at) > 1 else f"input {at[0]} alone is"
        what = f"{what} where {which} {name}"
        if forward := self._forward_fault(layouts):
            fault, kind, what = forward, forward.kind, f"{name} inputs are misread"
        if fault.judgement is None or fault.kind != kind:
            return fault
        return self.subject.fault("layout", what, fault.evidence, fault.judgement)

    def _forward_fault(self, layouts: Layouts) -> Fault | None:
        """That of a forward on inputs in these layouts; `None` if it is right."""
        feed = self.feed(layouts=layouts)
        try:
            (result,) = self.ask(feed)
            self.judged(self.forward_bounds, result.outputs, (feed,))
        except Fault as fault:
            return fault
        return None

    def answer(self, feed: Any, bounds: Callable[[Arithmetic], Bounds]) -> Result:
        """What the backend makes of a feed; only the forward is accused where that is wrong."""
        try:
            (result,) = self.ask(feed, ahead=[bounds])
        except Fault:
            if self.own.faults:
                raise forward_is_wrong(self) from None
            raise
        return result

    def derived(
        self,
        bounds: Callable[[Arithmetic], Bounds],
        result: Result,
        found: tuple[Any, ...],
        feed: Any,
        lowered: Callable[[str], Arrays],
    ) -> Judgement:
        """The judgement of the derivatives `found`, or the fault of whatever is wrong."""
        outputs = result.outputs
        if feed.grads is None and wrong_with_gradient(self.own, feed, outputs, "a derivative"):
            raise forward_is_wrong(self)
        kind, what = FAULTS[self.subject.check]
        try:
            judgement, expected = self.held(bounds, found, (feed,), kind=kind, what=what)
        except Fault:
            if self.own.faults:
                raise forward_is_wrong(self) from None
            self._require_gradient()
            prove_backward(self.case, self.arrays, self.upstream)
            prove_slopes(self.case, self.arrays, self.upstream, self.direction)
            raise
        if not any(b is not None and b.value.any() for b in expected):  # as of what is linear
            ones = [None if b is None else np.ones(b.value.shape) for b in expected]
            tells = rejects(expected, ones)
            void = not tells
        else:
            arrays = () if self.case.op.unchanged else (*self.arrays, *self.direction)
            tells, void = telling(expected, arrays, lambda: lowered(self.lower_dtype(judgement)))
        return replace(judgement, telling=tells, void=void or judgement.share == 0)

    def _require_gradient(self) -> None:
        """Raise `Inapplicable` where the first gradient is wrong already."""
        feed = self.feed(grads=self.upstream)
        (result,) = self.ask(feed)
        try:
            self.judged_gradient(result, feed)
        except Fault:
            wrong = f"the gradient of {self.case.op.name} is wrong"
            raise self.left_to("gradient", wrong) from None
