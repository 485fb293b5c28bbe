"""What a backend must refuse, and what it declares: invalid shapes and supported dtypes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Case, Operator, Tensor
from d5test.checks.check import Inquiry
from d5test.checks.reasons import Why, without_reference
from d5test.client.client import Raised
from d5test.client.messages import BackendInfo
from d5test.numerics.bounds import double
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Evidence
from d5test.outcome.tally import Inapplicable


def invalid_arguments(client: Any, case: Case) -> Judgement:
    """Shapes that do not fit raise, whatever the exception; they do not return or crash.

    What does not fit is what the reference refuses: an input that is one longer along one axis.
    """
    inquiry = Inquiry("invalid_arguments", client, case)
    wrong = _misfit(case)
    if wrong is None:
        raise Inapplicable("no invalid arguments exist for this case")
    wrong_inquiry = Inquiry("invalid_arguments", client, wrong)
    feed = wrong_inquiry.feed()
    try:
        wrong_inquiry.ask(feed, claim="raises")
    except Unsupported:
        return Judgement(telling=True)
    except AssertionError as fault:
        if getattr(fault, "kind", "") != "exception":
            raise
        return Judgement(telling=True)
    raise inquiry.subject.fault(
        "accepted",
        "shapes that do not fit are accepted",
        Evidence((feed,), "raises", wanted=wrong.wanted),
        misfit=repr(wrong),
    )


def _misfit(case: Case) -> Case | None:
    """The first case with one axis of one input lengthened that the reference refuses."""
    for i in case.wanted:
        tensor = case.inputs[i]
        if tensor is None or tensor.data is not None:
            continue
        for axis, side in enumerate(tensor.shape):
            if side < 2:
                continue
            shape = (*tensor.shape[:axis], side + 1, *tensor.shape[axis + 1 :])
            wrong = replace(case, inputs=_with(case.inputs, i, replace(tensor, shape=shape)))
            if _refused(wrong):
                return wrong
    return None


def _with(inputs: tuple[Tensor | None, ...], i: int, tensor: Tensor) -> tuple[Tensor | None, ...]:
    return tuple(
        tensor if j == i or (t is not None and t.same_as == i and j == i) else t
        for j, t in enumerate(inputs)
    )


def _refused(case: Case) -> bool:
    """Whether NumPy, running the reference, finds that the shapes do not fit."""
    try:
        with np.errstate(all="ignore"):
            case.op(*double(case.arrays()))
    except (ValueError, IndexError):
        return True
    return False


def declared_dtypes(client: Any, case: Case) -> Judgement:
    """A declared dtype runs; one that is not declared raises."""
    inquiry = Inquiry("declared_dtypes", client, case)
    declared = case.dtype in inquiry.row.dtypes
    feed = inquiry.feed()
    try:
        (result,) = client.run(case.op, [feed], wanted=case.wanted)
    except (Raised, Unsupported) as refusal:
        if reason := inquiry.known.refusal(case, str(refusal)):
            raise Unsupported(f"known failure: {reason}") from None
        if declared and isinstance(refusal, Raised):
            raise inquiry.subject.fault(
                "declared", f"{case.dtype} is declared and does not work",
                Evidence((feed,), "returns", wanted=case.wanted), raised=str(refusal),
            ) from None  # fmt: skip
        if declared:
            raise
        return Judgement(telling=True)
    if not declared:
        raise inquiry.subject.fault(
            "declared", f"{case.dtype} is not declared and works",
            Evidence((feed,), "raises", wanted=case.wanted),
        )  # fmt: skip
    inquiry.shapes_only(result.outputs, feed)
    return Judgement(telling=True)


def has_row(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """Why a backend cannot be asked for an operator in any dtype; nothing if it can."""
    if operator.__name__ not in about.rows:
        return Unsupported(f"{about.name} has no row for {operator.__name__}")
    return without_reference(operator)
