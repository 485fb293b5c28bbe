"""Integers and booleans as data: exactly what the reference makes of them, in their own dtype."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Arrays, Case, Operator
from d5test.checks.arguments import laid_out, require_refusal
from d5test.checks.check import Why, supported
from d5test.checks.explanation import narrowed
from d5test.checks.inquiry import Inquiry
from d5test.client.messages import BackendInfo
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds
from d5test.numerics.explanation import no_chance
from d5test.numerics.integers import (
    computed_bounds,
    integer_bounds,
)
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault
from d5test.outcome.tally import Inapplicable
from d5test.reference.formulas.indexing import AnyOfEqual
from d5test.reference.operators.indexing import TopK
from d5test.strategies.integers import COMPUTED, INDICES, OPEN, OPERATORS, WIDENING, data_of

PERMUTED = ("transposed", "strided", "sliced")
"""Layouts in which all elements of a tensor may be different."""


def integers(client: Any, case: Case) -> Judgement:
    """Every element is what it must be, whichever integers the data are and however they lie.

    A framework may refuse a dtype with a clean exception, which counts as unsupported. Where a
    result does not fit into the dtype, anything is right.
    """
    inquiry = Inquiry("integers", client, case)
    judgement, bounds = _exactly(inquiry)
    layouts = [name for name in inquiry.about.layouts if name in PERMUTED]
    if layouts:
        name = layouts[case.seed % len(layouts)]
        feed = inquiry.feed(layouts=laid_out(case, name, data_of(type(case.op))[:1]))
        (other,) = inquiry.ask(feed)
        what = f"{name} inputs are misread"
        inquiry.held(bounds, other.outputs, (feed,), kind="layout", what=what)
    return judgement


def integer_forms(client: Any, case: Case) -> Judgement:
    """The same of another call of the framework, on contiguous data."""
    inquiry = Inquiry("integer_forms", client, case)
    if inquiry.row.constants:
        raise Inapplicable("its constants are floating-point numbers")
    places = data_of(type(case.op))
    dtypes = {t.dtype for i, t in enumerate(case.inputs) if i in places and t is not None}
    if len(dtypes) > 1:
        raise Inapplicable("of two dtypes frameworks make the wider one, ONNX the first")
    if promoted := dtypes.intersection(inquiry.row.promotes):
        raise Unsupported(f"{case.form} makes another dtype of {', '.join(promoted)}")
    judgement, _ = _exactly(inquiry)
    return judgement


def compiled_integers(client: Any, case: Case) -> Judgement:
    """The same of code that is compiled for these very shapes and dtypes."""
    client.reset()
    judgement, _ = _exactly(Inquiry("compiled_integers", client, case))
    return judgement


def _exactly(inquiry: Inquiry) -> tuple[Judgement, Callable[[Arithmetic], Bounds]]:
    """The judgement of a plain call, and what is expected of any."""
    feed = inquiry.feed()
    try:
        (result,) = inquiry.ask(feed)
    except Fault as fault:
        require_refusal(fault)
        raise Unsupported(f"refused: {fault.details.get('raised', '')}") from None

    def bounds(arithmetic: Arithmetic) -> Bounds:
        return _expected(inquiry.operator(arithmetic), inquiry, inquiry.arrays, result.outputs)

    try:
        return inquiry.judged(bounds, result.outputs, (feed,)), bounds
    except Fault as fault:
        if fault.judgement is None:
            raise
        places, op = data_of(type(inquiry.case.op)), inquiry.operator(inquiry.allowed)
        expect = partial(_expected, op, inquiry, outputs=result.outputs)
        for name, expected in narrowed(inquiry.arrays, places, expect, result.outputs):
            if no_chance(bounds(inquiry.allowed), expected, result.outputs):
                what = f"the result is wrong: integers are converted to {name}"
                judgement = replace(fault.judgement, rounded_to="", read_as=name)
                raise inquiry.subject.fault("value", what, fault.evidence, judgement) from None
            fault.details["integers"] = f"the result is right if they are converted to {name}"
        raise


def _expected(op: Operator, inquiry: Inquiry, arrays: Arrays, outputs: Sequence[Any]) -> Bounds:
    """What is demanded of the outputs; a sum may be in a wider dtype than its terms."""
    operator = type(inquiry.case.op)
    places = data_of(operator)
    data = arrays[places[0]]
    assert data is not None
    if OPERATORS[operator] is COMPUTED and data.dtype != bool:
        wide = operator in WIDENING and outputs and outputs[0].dtype.kind in "iu"
        wide = wide and outputs[0].itemsize >= data.itemsize
        dtype = outputs[0].dtype if wide else data.dtype
        return computed_bounds(op, arrays, places, dtype)
    typed, any_of_equal = 0 if operator in INDICES else 1, isinstance(op, TopK | AnyOfEqual)
    op = inquiry.case.op if isinstance(op, AnyOfEqual) else op
    axis = getattr(op, "axis", None)
    expected = integer_bounds(op, arrays, typed)[: inquiry.row.outputs]
    if any_of_equal and _repeats(data, axis):
        return (*expected[:typed], *(None for _ in expected[typed:]))
    return expected


def _repeats(x: Array, axis: Any) -> bool:
    """Whether any elements along an axis are equal."""
    ordered = np.sort(x, axis)
    return bool(np.any(np.equal(*(np.delete(ordered, end, axis) for end in (0, -1)))))


def has_integers(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and ONNX says what the operator does with integers or booleans."""
    name = operator.__name__
    if name in OPEN:
        return Inapplicable(f"ONNX does not say how {name} rounds integers")
    if operator not in OPERATORS:
        return Inapplicable(f"{name} is not judged with integers for its data")
    return supported(operator, about, dtype)
