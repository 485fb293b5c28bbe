"""One step of a framework's own optimizer lies within the reference's bars.

Parameter and slots are judged, from a state in full swing, so that a wrong moment is found before
it has moved a parameter. The reference is the variant that the framework documents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis.strategies import SearchStrategy

from d5test.case import Case
from d5test.checks.check import Check, Inquiry
from d5test.numerics.judgement import Judgement
from d5test.training.variants import variant


def step(client: Any, case: Case) -> Judgement:
    """Every element of the parameter and of each slot lies within its bar."""
    given = variant(client, case.op.name)
    case = replace(case, op=case.op.with_(**given))
    inquiry = Inquiry("step", client, case)
    feed = inquiry.feed()
    (result,) = inquiry.ask(feed)
    return inquiry.judged(inquiry.forward_bounds, result.outputs, (feed,))


def drawn(operator: Any, dtype: str) -> SearchStrategy[Case]:
    """Steps of a rule."""
    import d5test.strategies.optimizers  # noqa: F401 (registers them)
    from d5test.strategies import cases

    return cases(operator, dtype)


STEP = Check("step", step, ("float64", "float32"), "value", cases=drawn)
