"""One step of a framework's own optimizer lies within the reference's bars.

Parameter and slots are judged, from a state in full swing, so that a wrong moment is found before
it has moved a parameter. The reference is the variant that the framework documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis.strategies import SearchStrategy

from d5test.case import Arrays, Case
from d5test.checks.check import Check, Inquiry
from d5test.numerics.bounds import forward_bounds
from d5test.numerics.judgement import Judgement, judge
from d5test.outcome.fault import Fault
from d5test.reference.steps import Step
from d5test.training.suspects import of_another_length, suspects
from d5test.training.variants import variant


def step(client: Any, case: Case) -> Judgement:
    """Every element of the parameter and of each slot lies within its bar."""
    given = variant(client, case.op.name)
    case = replace(case, op=case.op.with_(**given))
    inquiry = Inquiry("step", client, case)
    feed = inquiry.feed()
    (result,) = inquiry.ask(feed)
    try:
        return inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))
    except Fault as fault:
        assert isinstance(case.op, Step)
        named = looks_like(case.op, inquiry.arrays, result.outputs, inquiry.classes()[0])
        if named:
            fault.details["looks like"] = named
        raise


def looks_like(step: Step, arrays: Arrays, results: Sequence[Any], arithmetic: Any) -> str:
    """The suspects within whose bars the results lie; empty if there is none."""

    def explains(other: Step) -> bool:
        return judge(forward_bounds(other, arrays, arithmetic), results).right

    named = [name for name, other in suspects(step) if explains(other)]
    if not named:
        (after, *_), (start, *_) = forward_bounds(step, arrays, arithmetic), arrays
        if after is not None and start is not None and results[0].shape == start.shape:
            wide = (x.astype(np.float64) for x in (start, after.value, results[0]))
            longer = of_another_length(step, *wide)
            named = [longer[0]] if longer and explains(longer[1]) else []
    return ", or ".join(named)


def drawn(operator: Any, dtype: str) -> SearchStrategy[Case]:
    """Steps of a rule."""
    from d5test.strategies import cases
    from d5test.strategies.optimizers import register

    register(operator)
    return cases(operator, dtype)


STEP = Check("step", step, ("float64", "float32"), "value", cases=drawn)
