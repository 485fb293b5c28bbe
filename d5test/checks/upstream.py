"""How upstream gradients are given: in other layouts, with a NaN or an infinity among them.

A gradient that is wrong without that, too, is for the check `gradient` to accuse.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case, Operator
from d5test.checks.arguments import broadcast, has_layouts, laid_out, places
from d5test.checks.check import Why, with_gradient
from d5test.checks.inquiry import Inquiry
from d5test.checks.kept import require_kept
from d5test.client.messages import BackendInfo, Feed, Result
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bound, Bounds
from d5test.numerics.judgement import Judgement, judge, pairs
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

UPSTREAM = -1
"""The place of the upstream gradients, beside those of the inputs."""
BY_MASK = {
    **dict.fromkeys(
        ("GlobalMaxPool", "ReduceMax"),
        "its gradient may be dy times a mask of the largest, and NaN times zero is NaN",
    ),
    "ReduceMin": "as ReduceMax, of the smallest",
    "DeformConv": "as Resize",
    "GridSample": "as Resize",
    "Resize": "dy may be multiplied by the weights of all elements around, also those without any",
    "RoiAlign": "as Resize",
}
"""Operators of which a gradient in use, here jax's and torch's, multiplies by zero where the
reference does not."""


def layout_gradient(client: Any, case: Case) -> Judgement:
    """The gradients are right wherever the inputs and the upstream gradients lie in memory.

    `expanded` is one number with strides of 0: the upstream gradient that `sum().backward()` has.
    Inputs and upstream gradients keep their values.
    """
    inquiry = Inquiry("layout_gradient", client, case)
    layouts = [name for name in inquiry.about.layouts if name != "contiguous"]
    judgement, reasons = Judgement(), []
    for name in layouts:
        plain = _values(inquiry, name)
        at = (UPSTREAM,) if name == "expanded" else places(case, UPSTREAM)
        feed = inquiry.feed(
            plain.inputs, plain.grads, layouts=laid_out(case, name, at),
            grad_layout=name if UPSTREAM in at else "contiguous",
        )  # fmt: skip
        try:
            (result,) = inquiry.ask(feed, ahead=[_bounds(inquiry, feed)])
        except Unsupported as unsupported:
            reasons.append(f"{name}: {unsupported}")
            continue
        require_kept(inquiry, (feed,), result, plain, f" in a call with {name} ones")
        try:
            other = _held(inquiry, feed, result)
        except Fault as fault:
            raise _misread(inquiry, fault, plain, name, at) from None
        judgement = max(judgement, other, key=lambda j: j.ratio)
    if len(reasons) == len(layouts):
        raise Unsupported("; ".join(reasons))
    bounds = inquiry.gradient_bounds(inquiry.allowed, inquiry.upstream)
    controlled = inquiry.controlled(judgement, bounds, inquiry.upstream)
    return replace(judgement, telling=controlled.telling)


def has_gradient_layouts(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `with_gradient`, and the backend has memory layouts."""
    return has_layouts(operator, about, dtype) or with_gradient(operator, about, dtype)


def has_gradient_rules(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `with_gradient`, and all gradients in use keep a NaN from what does not depend on it."""
    if operator.__name__ in BY_MASK:
        return Inapplicable(BY_MASK[operator.__name__])
    return with_gradient(operator, about, dtype)


def _values(inquiry: Inquiry, name: str) -> Feed:
    """The inputs and upstream gradients that a layout may have, in a plain call."""
    case, arrays, grads = inquiry.case, inquiry.arrays, inquiry.upstream
    if name == "broadcast":
        arrays = broadcast(case, arrays)
        grads = tuple(
            np.broadcast_to(dy[:1], dy.shape).copy() if dy is not None and dy.ndim else dy
            for dy in grads
        )
    if name == "expanded":
        grads = tuple(None if dy is None else np.ones_like(dy) for dy in grads)
    feed: Feed = inquiry.feed(arrays, grads)
    return feed


def _held(inquiry: Inquiry, feed: Feed, result: Result) -> Judgement:
    """The judgement of the gradients of a call, or the fault that they are wrong."""
    judgement, _ = inquiry.held(
        _bounds(inquiry, feed), inquiry.gradients(result), (feed,),
        kind="gradient", what="the gradient is wrong",
    )  # fmt: skip
    return judgement


def _bounds(inquiry: Inquiry, feed: Feed) -> Callable[[Arithmetic], Bounds]:
    """The bars of the gradients of a call."""
    assert feed.grads is not None
    return partial(inquiry.gradient_bounds, grads=feed.grads, arrays=feed.inputs)


def _misread(
    inquiry: Inquiry, fault: Fault, plain: Feed, name: str, at: Sequence[int]
) -> Exception:
    """What to raise of gradients that are wrong in a layout; `Inapplicable` if they always are."""
    _require_right(inquiry, plain)
    what = f"{name} upstream gradients are misread"
    if UPSTREAM not in at:
        what = f"the gradient is wrong where input {at[0]} alone is {name}"
    elif len(at) > 1:
        (result,) = inquiry.ask(inquiry.feed(plain.inputs, plain.grads, grad_layout=name))
        try:
            _held(inquiry, plain, result)
        except Fault:
            pass  # of the upstream gradient alone, too
        else:
            what = f"the gradient is wrong where the inputs are {name}"
    return inquiry.subject.fault("layout", what, fault.evidence, fault.judgement)


def _require_right(inquiry: Inquiry, plain: Feed) -> None:
    """Raise `Inapplicable` where a plain call of a fresh worker has a wrong gradient."""
    if not inquiry.client.renew():
        inquiry.client.reset()
    (result,) = inquiry.ask(plain)
    try:
        _held(inquiry, plain, result)
    except Fault:
        wrong = f"the gradient of {inquiry.case.op.name} is wrong in a plain call"
        raise inquiry.left_to("gradient", wrong) from None


def special_gradient(client: Any, case: Case) -> Judgement:
    """A NaN in an upstream gradient reaches what depends on it, and nothing else; so an infinity.

    It may reach what the reference's own formula takes it to, by a product with zero. What becomes
    of an infinity there is left open.
    """
    inquiry = Inquiry("special_gradient", client, case)
    places = [k for k, dy in enumerate(inquiry.upstream) if dy is not None and dy.size]
    if not places:
        return Judgement(void=True)
    if getattr(case.op, "reduction", "") in ("max", "min"):  # of a Scatter
        raise Inapplicable(BY_MASK["ReduceMax"])
    chosen = places[case.seed // 2 % len(places)]
    return inquiry.by_any(lambda arithmetic: _with_special(inquiry, arithmetic, chosen))


def _with_special(inquiry: Inquiry, arithmetic: Arithmetic, chosen: int) -> Judgement:
    """The judgement by the bars of one arithmetic; upstream gradient `chosen` has the value."""
    value = (np.nan, np.inf)[inquiry.case.seed % 2]
    sets = [_with_one(inquiry, chosen, other) for other in (value, None)]
    feed = inquiry.feed(grads=sets[0])
    bounds = [partial(inquiry.gradient_bounds, grads=g) for g in (*sets, inquiry.upstream)]
    (result,) = inquiry.ask(feed, ahead=bounds)
    gradients = inquiry.gradients(result)
    poisoned, moved, clean = (bound(arithmetic) for bound in bounds)
    expects = partial(_expected, demands=bool(np.isnan(value)))
    expected = tuple(map(expects, poisoned, moved, clean))
    try:
        inquiry.shaped(expected, gradients, (feed,), gradients=True, claim="special")
        return _spread(inquiry, feed, expected, gradients, value)
    except Fault:
        _require_right(inquiry, inquiry.feed(grads=inquiry.upstream))
        raise


def _with_one(inquiry: Inquiry, chosen: int, value: float | None) -> Arrays:
    """The upstream gradients, one element of one of them replaced by `value` or moved by 1."""
    grads = list(inquiry.upstream)
    dy = np.array(grads[chosen], copy=True)
    at = inquiry.case.seed % dy.size
    dy.flat[at] = dy.flat[at] + 1 if value is None else value
    grads[chosen] = dy
    return tuple(grads)


def _expected(
    poisoned: Bound | None, moved: Bound | None, clean: Bound | None, *, demands: bool
) -> Bound | None:
    """What is demanded of one gradient: a NaN (bar 0), a number, or nothing (an infinite bar).

    A NaN is, if anything `demands` one, where the gradient certainly moves with that element of
    the upstream one.
    """
    if poisoned is None or moved is None or clean is None:
        return None
    with np.errstate(all="ignore"):
        depends = demands & (np.abs(moved.value - clean.value) > moved.bar + clean.bar)
    known = np.isfinite(poisoned.value) & np.isfinite(poisoned.bar)
    bar = np.where(known, poisoned.bar, np.where(depends & np.isnan(poisoned.value), 0.0, np.inf))
    return Bound(poisoned.value, bar, poisoned.storage)


def _spread(
    inquiry: Inquiry, feed: Feed, expected: Bounds, gradients: tuple[Any, ...], value: float
) -> Judgement:
    """The judgement, or the fault that a NaN was swallowed or reached what it should not."""
    fault = partial(inquiry.fault, "special", feeds=(feed,), claim="special", expected=(expected,))
    for k, bound, got in pairs(expected, gradients):
        lost = np.isnan(bound.value) & (bound.bar == 0) & ~np.isnan(got.astype(np.float64))
        if lost.any():
            where = f"the gradient of input {inquiry.wanted[k]}, {np.argwhere(lost)[0].tolist()}"
            raise fault(f"{value} in an upstream gradient is swallowed", where=where)
    judgement = judge(expected, gradients)
    if not judgement.right:
        what = f"{value} in one element of an upstream gradient spoils gradients without it"
        raise fault(what, judgement=judgement)
    return Judgement(judgement.ratio, judgement.share, telling=True)
