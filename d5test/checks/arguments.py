"""How arguments are given: layouts, degenerate shapes, larger batches; what must be refused."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product, zip_longest
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Arrays, Case, Operator
from d5test.checks.check import Why, supported, without_reference
from d5test.checks.inquiry import Inquiry, drawn_inputs
from d5test.checks.kept import require_kept
from d5test.checks.own_forward import OwnForward
from d5test.client.messages import MISTAKES, BackendInfo, Calls, Raised, same
from d5test.dtypes import WHOLE
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bound, Bounds, double
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import AT, Evidence, Fault
from d5test.outcome.tally import Inapplicable
from d5test.reference.operators.movement import Gather

BATCHES = (17, 33)
"""Batch sizes that no ordinary case has: beyond a vector, and beyond two of them."""


def layout(client: Any, case: Case) -> Judgement:
    """The same values in another layout of memory give results within the same bars.

    All inputs have it, or in every other case one alone. They keep their values.
    """
    inquiry = Inquiry("layout", client, case)
    layouts = [name for name in inquiry.about.layouts if name not in ("contiguous", "expanded")]
    judgement, reasons, at = Judgement(), [], places(case)
    alone = f" (input {at[0]} alone)" if len(at) < len(case.pullable) else ""
    for name in layouts:
        arrays = broadcast(case, inquiry.arrays) if name == "broadcast" else inquiry.arrays
        feed = inquiry.feed(arrays, layouts=laid_out(case, name, at))
        bounds = partial(inquiry.forward_bounds, arrays=arrays)
        try:
            (result,) = inquiry.ask(feed, ahead=[bounds])
        except Unsupported as unsupported:
            reasons.append(f"{name}: {unsupported}")
            continue
        plain = inquiry.feed(arrays)
        require_kept(inquiry, (feed,), result, plain, f" in a call with {name} ones{alone}")
        other = OwnForward(inquiry).judged(
            bounds, result.outputs, (feed,),
            plain, kind="layout", what=f"{name} inputs are misread{alone}",
        )  # fmt: skip
        judgement = max(judgement, other, key=lambda j: j.ratio)
    if len(reasons) == len(layouts):
        raise Unsupported("; ".join(reasons))
    return inquiry.controlled(judgement, inquiry.forward_bounds(inquiry.allowed))


def places(case: Case, *others: int) -> tuple[int, ...]:
    """Which inputs are laid out otherwise: all of them, or in every other case one alone.

    A function may look at its first input, and read the others as if they were like it.
    """
    every = (*case.pullable, *others)
    return (every[case.seed // 2 % len(every)],) if case.seed % 2 and every else every


def laid_out(case: Case, name: str, at: Sequence[int]) -> tuple[str, ...]:
    """The layout of each input, which is of this name `at` some."""
    return tuple(name if i in at else "contiguous" for i in range(len(case.inputs)))


def has_layouts(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and the backend has memory layouts."""
    if tuple(about.layouts) == ("contiguous",):
        return Unsupported(f"{about.name} has no memory layouts")
    return supported(operator, about, dtype)


def broadcast(case: Case, arrays: Arrays) -> Arrays:
    """Values that are constant along the first axis, as a stride of 0 makes them."""
    changed = [
        np.broadcast_to(a[:1], a.shape).copy()
        if i in case.pullable and a is not None and a.ndim
        else a
        for i, a in enumerate(arrays)
    ]
    return case.shared(changed)


def degenerate(client: Any, case: Case) -> Judgement:
    """Empty, scalar and size-one tensors give outputs and gradients of the right shape and value.

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
    except Fault as fault:
        if fault.kind not in ("exception", "row"):
            raise
        raise Unsupported(f"refused: {fault.details.get('raised', '')}") from None
    if all(np.size(y) == 0 for y in outputs):
        judgement = inquiry.shapes_only(result.outputs, feed)
    else:
        judgement = inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))
    if inquiry.row.gradient or not case.op.differentiable or not inquiry.wanted:
        return judgement
    feed = inquiry.feed(grads=inquiry.upstream)
    try:
        (result,) = inquiry.ask(feed)
    except Fault as fault:
        if fault.kind not in ("exception", "row"):
            raise
        raised = fault.details.get("raised", "")
        raise Unsupported(f"its gradient is refused: {raised}") from None
    return max(judgement, inquiry.judged_gradient(result, feed), key=lambda j: j.ratio)


def batch(client: Any, case: Case) -> Judgement:
    """A sample's result does not depend on how many others share the batch, nor on their place."""
    inquiry = Inquiry("batch", client, case)
    judgement = Judgement()
    crowds = [Crowd(inquiry, count) for count in BATCHES]
    inquiry.ask_together(*(crowd.feed for crowd in crowds), ahead=[inquiry.forward_bounds])
    for count, crowd in zip(BATCHES, crowds, strict=True):
        (result,) = inquiry.ask(crowd.feed)
        other = OwnForward(inquiry).judged(
            crowd.bounds, result.outputs, (crowd.feed,), inquiry.feed(), crowd.arranged,
            kind="batch", what=f"in a batch of {count}, samples differ from what they are alone",
        )  # fmt: skip
        judgement = max(judgement, other, key=lambda j: j.ratio)
    return judgement


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
        self.feed = inquiry.feed(case.shared(taken))

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


def invalid_arguments(client: Any, case: Case) -> Judgement:
    """Shapes that do not fit raise, whatever the exception; they do not return or crash.

    What does not fit is what the reference refuses: an input that is one longer along one axis.
    An index out of range may also give what the framework documents.
    """
    inquiry = Inquiry("invalid_arguments", client, case)
    if isinstance(case.op, Gather):
        return _out_of_range(inquiry)
    wrong = _misfit(case)
    if wrong is None:
        raise Inapplicable("no invalid arguments exist for this case")
    wrong_inquiry = Inquiry("invalid_arguments", client, wrong)
    feed = wrong_inquiry.feed()
    try:
        wrong_inquiry.ask(feed, claim="raises")
    except Unsupported:
        return Judgement(telling=True)
    except Fault as fault:
        require_refusal(fault)
        return Judgement(telling=True)
    _require_passed_on(client, wrong)
    what = "shapes that do not fit are accepted"
    raise inquiry.fault("accepted", what, (feed,), "raises", misfit=repr(wrong))


def _require_passed_on(client: Any, wrong: Case) -> None:
    """Raise `Inapplicable` if the framework is called as it is on arguments that fit.

    A row may pass on a part of an input: of the size of a batch of grids all but the batch.
    """
    calls = client.record(wrong.op, wrong.arrays(), wrong.form)
    if not calls.source:
        return
    for right in _fitting(wrong):
        other = client.record(right.op, right.arrays(), right.form)
        if calls.source == other.source and same(*map(_taken, (calls, other))):
            raise Inapplicable("the row does not pass on what shows that these shapes do not fit")


def _taken(calls: Calls) -> list[Array]:
    """The tensors that a recorded call takes."""
    return [x for x, _ in calls.tensors]


def _fitting(wrong: Case) -> Iterator[Case]:
    """The cases that the reference takes with another whole number in one of the inputs."""
    sides = {side for shape in wrong.shapes for side in shape or ()}
    for i, tensor in enumerate(wrong.inputs):
        if tensor is None or tensor.data is None or tensor.dtype not in WHOLE:
            continue
        for at, side in product(range(len(tensor.data)), sides):
            data = (*tensor.data[:at], side, *tensor.data[at + 1 :])
            inputs = (*wrong.inputs[:i], replace(tensor, data=data), *wrong.inputs[i + 1 :])
            if not _refused(right := replace(wrong, inputs=inputs)):
                yield right


def _out_of_range(inquiry: Inquiry) -> Judgement:
    """One index is out of range: memory beyond the tensor is never what comes of it.

    It raises or the entry is NaN, zero or another one of the tensor, whatever is documented. On a
    GPU it may end the process by design.
    """
    case: Any = inquiry.case
    x, indices = (np.asarray(array) for array in inquiry.arrays)
    if inquiry.about.device != "cpu":
        raise Inapplicable("on a GPU an index out of range may end the process")
    if not np.size(x) or not np.size(indices):
        raise Inapplicable("there is nothing to index")
    axis, n = case.op.axis % x.ndim, x.shape[case.op.axis]
    wrong = np.array(indices)
    at = case.seed % wrong.size
    wrong.flat[at] = (n, -n - 1, n + 3)[case.seed % 3]
    feed = inquiry.feed((x, wrong))
    documented = inquiry.row.out_of_range
    allowed = documented or ("raises", "nan", "zero", "clamped", "wrapped")
    fault = partial(inquiry.fault, "accepted", feeds=(feed,), claim="raises")
    try:
        (result,) = inquiry.ask(feed, claim="raises")
    except Fault as refused:
        require_refusal(refused)
        if "raises" not in allowed:
            raise fault(f"an index out of range raises, not {' or '.join(documented)}") from None
        return Judgement(telling=True)
    beyond = np.zeros(wrong.shape, bool)
    beyond.flat[at] = True
    beyond = beyond.reshape(*(1,) * axis, *wrong.shape, *(1,) * (x.ndim - axis - 1))
    right = np.take(x, wrong, axis, mode="wrap")
    nearest = np.full(wrong.shape, 0 if wrong.flat[at] < 0 else n - 1)
    entries: dict[str, Any] = {
        "nan": np.nan, "zero": 0.0, "wrapped": right, "clamped": np.take(x, nearest, axis),
    }  # fmt: skip
    for entry in (entries[name] for name in allowed if name != "raises"):
        if np.array_equal(result.outputs[0], np.where(beyond, entry, right), equal_nan=True):
            return Judgement(telling=True)
    raise fault(f"the index {wrong.flat[at]} of {n} entries is accepted")


def require_refusal(fault: Fault) -> None:
    """Raise the fault unless it is an exception that the arguments may be the reason of.

    A mistake of the backend's own code is none: what it breaks is the claim that the call returns.
    """
    if fault.details.get(AT, "").rpartition(": ")[2] in MISTAKES:
        fault.evidence = replace(fault.evidence, claim="returns")
        raise fault
    if fault.kind != "exception":
        raise fault


def _misfit(case: Case) -> Case | None:
    """The first case with one axis of one input lengthened that the reference refuses."""
    for i, tensor in drawn_inputs(case):
        for axis, side in enumerate(tensor.shape):
            if side < 2:
                continue
            shape = (*tensor.shape[:axis], side + 1, *tensor.shape[axis + 1 :])
            longer = replace(tensor, shape=shape)
            wrong = replace(case, inputs=(*case.inputs[:i], longer, *case.inputs[i + 1 :]))
            if _refused(wrong):
                return wrong
    return None


def _refused(case: Case) -> bool:
    """Whether NumPy, running the reference, finds that the shapes do not fit."""
    try:
        with np.errstate(all="ignore"):
            case.op(*double(case.arrays()))
    except (ValueError, IndexError):
        return True
    return False


def declared_dtypes(client: Any, case: Case) -> Judgement:
    """A declared dtype runs; one that is not declared raises, and is then unsupported."""
    inquiry = Inquiry("declared_dtypes", client, case)
    declared = case.dtype in inquiry.row.dtypes
    feed = inquiry.feed()
    try:
        (result,) = client.run(case.op, [feed], wanted=case.wanted)
    except (Raised, Unsupported) as refusal:
        if reason := inquiry.known.refusal(case, str(refusal)):
            raise Unsupported(f"known failure: {reason}") from None
        if declared and isinstance(refusal, Raised):
            what = f"{case.dtype} is declared, and valid inputs raise an exception"
            evidence = Evidence((feed,), "returns", wanted=inquiry.wanted)
            raise inquiry.raised(refusal, evidence, "declared", what) from None
        if declared:
            raise
        raise _undeclared(inquiry) from None
    try:
        inquiry.shapes_only(result.outputs, feed)
    except Fault:
        if declared:
            raise
        raise _undeclared(inquiry) from None  # it is converted, and computed in another dtype
    if not declared:
        what = f"{case.dtype} works, although the row does not declare it"
        raise inquiry.fault("declared", what, (feed,), "raises")
    return Judgement(telling=True)


def _undeclared(inquiry: Inquiry) -> Unsupported:
    case, backend = inquiry.case, inquiry.about.name
    return Unsupported(f"{case.op.name} is not declared for {case.dtype} on {backend}")


def has_row(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """Why a backend cannot be asked for an operator in any dtype; nothing if it can."""
    if operator.__name__ not in about.rows:
        return Unsupported(f"{about.name} has no row for {operator.__name__}")
    return without_reference(operator)
