"""NaN and infinity: not swallowed, not invented.

One special value is put into one element of an input. Where the reference's result is what it was
without it, the backend's stays within its bar. Where the reference's is NaN, so is the backend's,
if the result depends on that element at all: a weight that meets padding only need not be read.

What an infinity becomes is demanded where it is certain, whatever the formula: an infinity, or a
number within its bar (`d5test/numerics/infinities.py`). Infinity minus infinity is left open. An
infinity is put into one element, and into a whole line, or all of an input. What is no number is
judged where IEEE 754 says what it is: of comparisons.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from d5test.case import FLOATS, Array, Arrays, Case, Operator
from d5test.checks.inquiry import Inquiry, drawn_inputs
from d5test.checks.own_forward import OwnForward, forward_is_wrong
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bound, double
from d5test.numerics.judgement import Judgement, judge
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable

Place = tuple[Any, ...]
"""An index of one element, or with slices of several."""

NAN_IS_OPEN = {
    "Max": "IEEE 754 has maximum and maximumNumber, ONNX names neither",
    "Min": "IEEE 754 has minimum and minimumNumber, ONNX names neither",
    "Relu": "max(0, x), with the same question",
    "DynamicQuantizeLinear": "by the Max and Min of all",
    "GlobalMaxPool": "as Max",
    "MaxPool": "as Max",
    "MaxRoiPool": "as Max",
    "ReduceMax": "as Max",
    "ReduceMin": "as Min",
    "TopK": "an order has no place for NaN",
    "Hardmax": "as TopK",
    "Clip": "by Max and Min, with the same question",
    "HardSigmoid": "by Max and Min, with the same question",
    "LeakyRelu": "written with a comparison, which NaN fails on either side",
    "PRelu": "as LeakyRelu",
    "ThresholdedRelu": "as LeakyRelu",
    "Shrink": "as LeakyRelu",
    "ReduceLogSumExp": "shifted by a maximum or not",
    "Sign": "a NaN is neither above zero nor below it nor zero, and ONNX has these three cases",
}
"""Operators for which ONNX does not say what becomes of a NaN: the framework's choice, which is
demanded where the framework documents it (`propagates_nan` in its row)."""


def is_open(case: Case, chosen: int) -> bool:
    """Whether ONNX leaves open what becomes of a NaN in an input.

    So, too, where a Relu is an activation, and of a C that Gemm multiplies by 0: BLAS says that it
    need not be set then.
    """
    op = case.op
    chosen_by_order = getattr(op, "reduction", "") in ("max", "min")  # of a Scatter, as Max
    unread = op.name == "Gemm" and chosen == 2 and not getattr(op, "beta", 1)
    return (
        unread
        or chosen_by_order
        or op.name in NAN_IS_OPEN
        or "Relu" in getattr(op, "activations", ())
    )


UNORDERED = ("Hardmax", "TopK")
"""Operators that choose by order: where one is NaN, ONNX does not say which others come out."""
CLIPPED = 3
"""The inputs of a Clip with both bounds."""

MEETS_ZEROS = {
    "ConvTranspose": (1,), "PRelu": (1,), "RNN": (2,), "GRU": (2, 5), "LSTM": (2, 7),
    "GridSample": (0,), "Resize": (0,), "RoiAlign": (0,),
    "DeformConv": (0,), "DFT": (0,), "STFT": (0, 2),
}  # fmt: skip
"""Inputs that may meet zeros which the reference has not: the weights, where it is computed as a
convolution of the inputs with zeros between and around them; the slope, where it multiplies what
is not positive; what multiplies states, which may be too small for their format; a state that is
multiplied by its own gate, whose logistic function may be 0 of an infinity, or the number of a
clamped argument; the elements around a place, of which some have no weight; what a fast transform
adds up and takes away again. NaN and infinity times zero are NaN."""

AT_COORDINATES = ("GridSample", "Resize")
"""Operators with weights that follow from coordinates: where one is rounded to a whole number, a
weight that was next to zero is zero, and need not meet a NaN."""
COORDINATE = 16
"""By how many roundings of the longest side a coordinate, or the weight that follows, may be off:
four operations on numbers up to four sides long."""


def unclear(case: Case, arithmetic: Arithmetic) -> float:
    """Weights up to which an honest computation may have zero instead.

    All of them, where coordinates have 16 bits: the nearest element may be another one.
    """
    op: Any = case.op
    if op.name not in AT_COORDINATES:
        return 0.0
    if op.name == "GridSample" and op.mode == "nearest" and case.dtype in FLOATS[2:]:
        return float(np.inf)
    return COORDINATE * arithmetic.u * max(case.shapes[0] or (0,), default=0)


def decides(case: Case, chosen: int) -> bool:
    """Whether all honest ways to compute a case make the same of an infinity in an input.

    Not of the scale s of a normalisation, where x s / sigma + (b - mean s / sigma) is NaN; nor of
    what is normalised, whose mean is NaN where it is updated with each element (Welford); nor of
    an x that Clip has no bound for, since ONNX has the largest number there; nor of a matrix,
    whose elimination may subtract infinities.
    """
    op = case.op
    if spreads(case, chosen) or op.name == "Det":
        return False
    if op.name == "Clip":
        return sum(tensor is not None for tensor in case.inputs) == CLIPPED
    if op.name == "BatchNormalization" and not getattr(op, "training_mode", 0):
        return chosen != 1
    return not op.name.endswith("Normalization") or chosen > 1


def spreads(case: Case, chosen: int) -> bool:
    """Whether a special value of an input may reach what the reference keeps it from.

    A score that a mask of an Attention hides may be left out, or be NaN plus minus infinity; and a
    value that has no weight may be multiplied by it.
    """
    op: Any = case.op
    if op.name != "Attention":
        return chosen in MEETS_ZEROS.get(op.name, ())
    masks = (case.inputs[3:4], case.inputs[6:7])
    windowed = op.left_window_size >= 0 or op.right_window_size >= 0
    return bool(op.is_causal) or windowed or any(m and m[0] is not None for m in masks)


def special(client: Any, case: Case, check: str = "special") -> Judgement:
    """A NaN reaches what depends on it, and nothing else; an infinity likewise."""
    inquiry = Inquiry(check, client, case)
    if not case.pullable:
        raise Inapplicable("no input can be NaN or infinite")
    if case.op.sized_by_values:
        raise Inapplicable("another value makes a result of another size")
    chosen = _chosen(case)
    if chosen is None:
        return Judgement(void=True)
    return inquiry.by_any(lambda arithmetic: _in(inquiry, arithmetic, chosen))


def _in(inquiry: Inquiry, arithmetic: Arithmetic, chosen: int) -> Judgement:
    """The judgement by the bars of one arithmetic; special values are put into input `chosen`."""
    feed, specials = inquiry.feed(), list(_specials(inquiry, chosen))
    arrays = [inquiry.arrays, *(a for s in specials for a in (s.moved, s.feed.inputs))]
    plain = [partial(_plain, inquiry, arrays=a) for a in arrays]
    inquiry.ask_together(feed, *(s.feed for s in specials), ahead=[inquiry.forward_bounds, *plain])
    (before,) = inquiry.ask(feed)
    try:
        inquiry.shaped(inquiry.forward_bounds(arithmetic), before.outputs, (feed,))
    except Fault:
        raise forward_is_wrong(inquiry) from None
    worst = Judgement(telling=True)
    for special in specials:
        try:
            judgement = _with_special(inquiry, arithmetic, chosen, special, before.outputs)
        except Fault as fault:
            # a number that is off, as the forward is by itself, is no answer to an infinity
            off = OwnForward(inquiry).off
            wrong = fault.judgement.ratio if fault.judgement is not None else np.inf
            if off == np.inf or (off > 1 and wrong <= 2 * off):
                raise forward_is_wrong(inquiry) from None
            raise
        worst = max(worst, judgement, key=lambda j: j.ratio)
    return worst


@dataclass(frozen=True)
class Special:
    """A special value and its place, the call that has it, and the inputs moved by 1 there."""

    value: float
    place: Place
    feed: Any
    moved: Arrays


def _specials(inquiry: Inquiry, chosen: int) -> Iterator[Special]:
    """The special values that are put into an input."""
    change = partial(_with_one, inquiry.case, inquiry.arrays, chosen)
    before, moved = None, inquiry.arrays
    for value, place in _places(inquiry.case, chosen):
        if place != before:
            before, moved = place, change(place, None)
        yield Special(value, place, inquiry.feed(change(place, value)), moved)


def _places(case: Case, chosen: int) -> Iterator[tuple[float, Place]]:
    """Special values, and where they are put: in one element, along an axis, or everywhere."""
    shape = case.shapes[chosen] or ()
    one = tuple(int(i) for i in np.unravel_index(case.seed % prod(shape), shape))
    for value in (np.nan, np.inf, -np.inf):
        yield value, one
    sign, everywhere, axis = map(int, np.random.Philox(key=[case.seed, prod(shape)]).random_raw(3))
    wide = range(len(shape)) if everywhere % 2 else {axis % max(len(shape), 1)}
    along = tuple(slice(None) if a in wide else i for a, i in enumerate(one))
    yield (-np.inf, np.inf)[sign % 2], along


def _with_special(
    inquiry: Inquiry,
    arithmetic: Arithmetic,
    chosen: int,
    special: Special,
    before: tuple[Any, ...],
) -> Judgement:
    """The input `chosen` has a special value: judged by outputs `before` that."""
    case, value, feed = inquiry.case, special.value, special.feed
    bounds, poisoned = inquiry.forward_bounds(arithmetic), feed.inputs
    demands = bool(np.isnan(value)) and (inquiry.row.propagates_nan or not is_open(case, chosen))
    spread = spreads(case, chosen) or (bool(np.isnan(value)) and case.op.name in UNORDERED)
    clear = unclear(case, arithmetic)
    (result,) = inquiry.ask(feed)
    inquiry.shaped(bounds, result.outputs, (feed,))
    expected = tuple(
        _special_bound(
            *outputs, demands=demands, clear=clear, spreads=spread, answers=case.op.answers_nan
        )
        for outputs in zip(
            bounds,
            before,
            *(_plain(inquiry, arithmetic, a) for a in (inquiry.arrays, special.moved, poisoned)),
            strict=True,
        )
    )
    kept = expected
    # a formula says which number comes of the NaN, unless each implementation may choose it
    if arithmetic.formula and np.isnan(value) and case.op.name not in NAN_IS_OPEN:
        after = inquiry.forward_bounds(arithmetic, poisoned)
        own = _plain(inquiry, replace(arithmetic, formula=""), poisoned)
        expected = tuple(map(_finite, expected, after, result.outputs, own))
    elif np.isinf(value) and decides(case, chosen):
        after = inquiry.forward_bounds(arithmetic, poisoned)
        kept = tuple(map(partial(_saturated, modelled=bool(arithmetic.model)), expected, after))
        expected = tuple(map(_certain, kept, after))
    fault = partial(inquiry.fault, "special", feeds=(feed,), claim="special", expected=(expected,))
    for k, (bound, got) in enumerate(zip(expected, result.outputs, strict=False)):
        lost = np.isnan(bound.value.astype(np.float64)) & ~np.isnan(got.astype(np.float64))
        if bound.storage is not None and np.any(lost & (bound.bar == 0)):
            where = (
                f"input {chosen}; output {k}, {np.argwhere(lost & (bound.bar == 0))[0].tolist()}"
            )
            raise fault(f"{value} in an input is swallowed", where=where)
    judgement = judge(expected, result.outputs)
    if not judgement.right:
        what = f"{value} in one element spoils others"
        if not kept[judgement.output].judged[judgement.position]:
            due = f"but an input of {value} makes it {judgement.want:.7g}"
            what = f"the result is {judgement.got:.7g}, {due}"
        elif expected[judgement.output].storage is None:
            what = f"the answer is wrong where an input is {value}"
        elif judgement.position == special.place:
            what = f"the result is wrong where the input is {value}"
        raise fault(what, judgement=judgement)
    return judgement


def _chosen(case: Case) -> int | None:
    """The input of which one element is replaced; `None` if there is none to replace."""
    candidates = [i for i, tensor in drawn_inputs(case) if 0 not in tensor.shape]
    return candidates[case.seed % len(candidates)] if candidates else None


def _with_one(case: Case, arrays: Arrays, i: int, place: Place, value: float | None) -> Arrays:
    """The inputs with what is at `place` of input `i` replaced by `value`, or moved by 1."""
    changed = list(arrays)
    array = np.array(arrays[i], copy=True)
    array[place] = array[place] + 1 if value is None else value
    changed[i] = array
    return case.shared(changed)


def _plain(inquiry: Inquiry, arithmetic: Arithmetic, arrays: Arrays) -> tuple[Any, ...]:
    """The reference's own outputs, in float64."""
    outputs: tuple[Any, ...] = inquiry.once(_exact, arithmetic, (arrays,))
    return outputs[: inquiry.row.outputs]


def _exact(op: Operator, arrays: Arrays, _: Arithmetic) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        return op(*double(arrays))


def _special_bound(
    bound: Bound, own: Array, clean: Array, moved: Array, want: Array,
    *, demands: bool, clear: float, spreads: bool, answers: bool,
) -> Bound:  # fmt: skip
    """What is demanded of one output: a NaN (bar 0), what it was before, or nothing (infinity).

    What it was before is the backend's `own`, which may be off itself: twice the bar. A NaN is
    demanded of what changed by more than `clear` when the element was moved by 1.
    """
    assert bound is not None
    if bound.storage is None:
        return Bound(want, np.full(want.shape, 0.0 if answers else np.inf), None)
    unchanged = want == clean
    with np.errstate(invalid="ignore"):
        follows = (moved != clean) & ~(np.abs(moved - clean) <= clear)
    demanded = np.isnan(want) & follows & demands
    kept = np.inf if spreads else 2 * bound.bar
    bar = np.where(unchanged, kept, np.where(demanded, 0.0, np.inf))
    return Bound(np.where(unchanged, own.astype(np.float64), want), bar, bound.storage)


def _finite(expected: Bound, poisoned: Bound | None, got: Array, own: Array) -> Bound:
    """What is demanded of one output, and the bars of what is finite and was open.

    A NaN is right wherever the operator's `own` formula gives one; nowhere, where a model of a
    fault has another shape.
    """
    assert poisoned is not None
    with np.errstate(all="ignore"):
        finite = np.isfinite(poisoned.value + poisoned.bar) & np.isinf(expected.bar)
    nan = np.isnan(got.astype(np.float64))
    finite &= ~nan
    excused = nan & np.isnan(own) if own.shape == got.shape else np.zeros_like(nan)
    bar = np.where(finite, poisoned.bar, np.where(excused, np.inf, expected.bar))
    return Bound(np.where(finite, poisoned.value, expected.value), bar, expected.storage)


def _certain(expected: Bound, poisoned: Bound | None) -> Bound:
    """What is demanded of one output, and what is certain of what an infinity changed."""
    assert poisoned is not None
    certain = poisoned.judged & np.isinf(expected.bar) & (expected.storage is not None)
    bar = np.where(certain, poisoned.bar, expected.bar)
    return Bound(np.where(certain, poisoned.value, expected.value), bar, expected.storage)


def _saturated(expected: Bound, poisoned: Bound | None, *, modelled: bool) -> Bound:
    """What is demanded of one output that is the same number before an infinity and after.

    It may depend on it all the same, as tanh and gates do that were 1 before: so it has its bar
    before and its bar after. Of an error model none may be left, where a gate that may be zero
    meets an infinite state.
    """
    assert poisoned is not None
    both = np.maximum(expected.bar, expected.bar / 2 + poisoned.bar)
    bar = np.where(poisoned.judged, both, np.inf if modelled else expected.bar)
    return replace(expected, bar=bar)
