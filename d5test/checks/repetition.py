"""What a second call must not change: determinism, private inputs and outputs, no caching."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case
from d5test.checks.inquiry import Inquiry, drawn_inputs
from d5test.checks.kept import require_kept
from d5test.checks.own_forward import OwnForward
from d5test.client.messages import Result, same
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds
from d5test.numerics.judgement import Judgement, ratios
from d5test.outcome.fault import Fault
from d5test.reference.operators.reductions import Cumulative, Reduction

ALONG = (Reduction, Cumulative)
"""Operators whose second input has the axes along which they go."""
LITTLE = 1 / 16
"""Half of a smaller attribute, as of an epsilon, makes no difference that shows."""


def determinism(client: Any, case: Case) -> Judgement:
    """Three calls with the same input give the same bits, outputs and gradients alike.

    So does a second backward pass through the graph of a fourth.
    """
    inquiry = Inquiry("determinism", client, case)
    grads = inquiry.upstream if inquiry.has_gradient else None
    feed = inquiry.feed(grads=grads)
    _require_repeated(inquiry, (feed,) * 3, "the same call")
    if grads is not None and "vjp_again" in client.about.derivatives:
        again = inquiry.feed(grads=grads, again=True)
        _require_repeated(inquiry, (feed, again), "a second backward pass through the same graph")
    return Judgement(telling=True)


def _require_repeated(inquiry: Inquiry, feeds: tuple[Any, ...], subject: str) -> None:
    """Raise the fault of a call that does not repeat the first of them."""
    first, *others = inquiry.ask(*feeds, claim="repeats")
    for other in others:
        for name in ("outputs", "gradients"):
            if not same(getattr(first, name) or (), getattr(other, name) or ()):
                if reason := inquiry.about.nondeterministic[inquiry.case.op.name][name]:
                    raise Unsupported(reason)
                what = f"{subject} gives other {name}"
                raise inquiry.fault("nondeterministic", what, feeds, "repeats")


def untouched(client: Any, case: Case) -> Judgement:
    """Inputs and upstream gradients keep their values, and outputs survive the next call.

    The forward pass is asked alone first: with a gradient a framework may take another way. In
    other layouts the checks `layout` and `layout_gradient` look at the inputs.
    """
    inquiry = Inquiry("untouched", client, case)
    _require_untouched(inquiry, None)
    if inquiry.has_gradient:
        _require_untouched(inquiry, inquiry.upstream)
    return Judgement(telling=True)


def _require_untouched(inquiry: Inquiry, grads: Arrays | None) -> None:
    """Raise the fault of two calls that write where they may not."""
    feeds = (inquiry.feed(grads=grads), inquiry.feed(_other(inquiry.case), grads))
    results = inquiry.ask(*feeds, claim="untouched")
    for count, result in enumerate(results, 1):
        require_kept(inquiry, feeds[:count], result)
        if not same(result.outputs, result.late):
            what = "an output changes when the next call is made"
            raise inquiry.fault("overwritten", what, feeds, "kept")


def no_caching(client: Any, case: Case) -> Judgement:
    """Other inputs of the same shape, at the same address where there is one, give other outputs.

    The second call differs in one element, the third has the same elements in another order, the
    fourth is new throughout: a cache by identity, address, shape or fingerprint meets one of them.
    A wrong result proves one if the same inputs give another in a plain call, or if it is that of
    an earlier call and right as soon as the inputs change by a rounding. A last call has the same
    data and another attribute, or axis: a cache by shape meets it.
    """
    inquiry = Inquiry("no_caching", client, case)
    sets = [case.arrays(), *variations(case, case.arrays())]
    reuse = bool(inquiry.about.mutable)
    feeds = tuple(inquiry.feed(arrays) for arrays in sets)
    expected = [partial(inquiry.forward_bounds, arrays=arrays) for arrays in sets]
    results = inquiry.ask(*feeds, reuse=reuse, ahead=expected)
    judgement, own, causes = Judgement(), OwnForward(inquiry), []
    for i, (arrays, bounds, result) in enumerate(zip(sets, expected, results, strict=True)):
        try:
            another, _ = inquiry.held(
                bounds, result.outputs, feeds[: i + 1], kind="cached" if i else "value",
                what="the outputs do not follow the inputs" if i else "the result is wrong",
                reuse=reuse, last=True,
            )  # fmt: skip
        except Fault as fault:
            cause = own.cause(fault, result.outputs, bounds, inquiry.feed(arrays))
            if i == 0 and isinstance(cause, Fault):  # it is of what came before this case
                raise cause from None
            if cause is fault or _is_stale(own, bounds, results[: i + 1], arrays):
                raise
            causes.append(cause)
        else:
            judgement = max(judgement, another, key=lambda j: j.ratio)
    for cause in causes:
        raise cause
    _require_attributes_followed(inquiry)
    return inquiry.controlled(judgement, inquiry.forward_bounds(inquiry.allowed))


def _require_attributes_followed(before: Inquiry) -> None:
    """Raise the fault of a call that has the attributes of those before it."""
    case = with_another_attribute(before.case, len(before.outputs))
    if case is None:
        return
    inquiry = Inquiry("no_caching", before.client, case)
    if inquiry.known.covers(inquiry.case, "forward", "no_caching"):
        return
    feed = inquiry.feed()
    with suppress(Unsupported):
        (result,) = inquiry.ask(feed)
        OwnForward(inquiry).judged(
            inquiry.forward_bounds, result.outputs, (feed,), feed,
            kind="cached", what="the outputs do not follow the attributes",
        )  # fmt: skip


def with_another_attribute(case: Case, outputs: int) -> Case | None:
    """The case with another number, along another axis, or with the paddings of both ends
    exchanged, if it has such an attribute or input.

    One attribute changes; which, the case's seed decides. An axis fits one input that becomes one
    output, others may have been divided or joined along it.
    """
    changes: list[Case] = []
    other: dict[str, Any]
    rank = len(case.shapes[0] or ())
    for name, value in case.op.attributes.items():
        if isinstance(value, float):
            other = {name: value / 2 if abs(value) > LITTLE else 0.5}
        elif name == "axis" and rank > 1 and len(case.inputs) == outputs == 1:
            other = {name: (value % rank + 1) % rank}
        elif name == "pads" and value and not getattr(case.op, "ceil_mode", 0):
            half = len(value) // 2
            other = {name: (*value[half:], *value[:half])}
        else:
            continue
        if (op := case.op.with_(**other)) != case.op:
            changes.append(replace(case, op=op))
    axes = case.inputs[1] if isinstance(case.op, ALONG) and len(case.inputs) > 1 else None
    if axes is not None and axes.data and rank > 1:
        turned = replace(axes, data=tuple((axis % rank + 1) % rank for axis in axes.data))
        changes.append(replace(case, inputs=(case.inputs[0], turned, *case.inputs[2:])))
    return changes[case.seed % len(changes)] if changes else None


def _is_stale(
    own: OwnForward,
    bounds: Callable[[Arithmetic], Bounds],
    results: Sequence[Result],
    arrays: Arrays,
) -> bool:
    """Whether the last result is an earlier call's wherever it is wrong, and right once nudged.

    Wrong is what is further off than the forward is anyway. What a fresh worker returns, too, is
    no earlier call's: a function that rounds halves wrongly has the result of another argument.
    """
    *earlier, last = (result.outputs for result in results)
    if own.off == inf or (own.alone is not None and same(own.alone, last)):
        return False
    wrong = [
        np.zeros(np.shape(y), bool) if bound is None else ratios(bound, y) > own.off
        for bound, y in zip(bounds(own.inquiry.loosest), last, strict=True)
    ]
    if not any(np.any(w) for w in wrong):
        return False
    repeats = any(
        all(np.array_equal(x[w], y[w]) for x, y, w in zip(before, last, wrong, strict=True))
        for before in earlier
    )
    return repeats and own.right(_changed(own.inquiry.case, arrays, _next_number))


def variations(case: Case, arrays: Arrays) -> tuple[Arrays, ...]:
    """Other data of the same shapes: one element changed, another order, new throughout.

    `arrays` are the case's, or a part of them; of a part none are new throughout.
    """
    changed = (_changed(case, arrays, _middle_halved), _changed(case, arrays, _reversed))
    other = _other(case)
    shapes = [[None if x is None else x.shape for x in inputs] for inputs in (arrays, other)]
    return (*changed, other) if shapes[0] == shapes[1] else changed


def _other(case: Case) -> Arrays:
    """Floating-point inputs drawn anew; indices, shapes and masks stay."""

    def draw(i: int, _: Any) -> Any:
        return case.inputs[i].array(case.seed + 1, i)  # type: ignore[union-attr]

    return _changed(case, case.arrays(), draw)


def _middle_halved(_: int, array: Any) -> Any:
    array = array.copy()
    if array.size:
        array.flat[array.size // 2] = array.flat[array.size // 2] / 2
    return array


def _reversed(_: int, array: Any) -> Any:
    return array.ravel()[::-1].reshape(array.shape).copy()


def _next_number(_: int, array: Any) -> Any:
    return np.nextafter(array, np.inf, dtype=array.dtype)


def _changed(case: Case, arrays: Arrays, change: Callable[[int, Any], Any]) -> Arrays:
    """The floating-point inputs changed, each with its position."""
    changed = list(arrays)
    for i, _ in drawn_inputs(case):
        changed[i] = change(i, changed[i])
    return case.shared(changed)
