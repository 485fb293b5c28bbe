"""Whether what is drawn by chance has the distribution that ONNX names, and follows its seed."""

from dataclasses import replace
from math import log
from typing import Any

import numpy as np

from d5test.case import Case, dtype_of, is_float
from d5test.checks.chance import ODDS, SHARES, chance_of, wrong
from d5test.checks.inquiry import Inquiry
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import NO_CALLS
from d5test.values import finfo

APART = 17
"""To the other seed: 0 and 1 are one and the same for a linear congruential generator of C++."""


def distribution(client: Any, case: Case) -> Judgement:
    """Shape and dtype are right, the numbers are not unlikely, and a seed decides them.

    Two calls give the same numbers if there is a seed, and others if there is none; another seed
    gives others. Where the backend documents that a seed does not repeat, that is not asked.
    """
    inquiry = Inquiry("distribution", client, case)
    op: Any = case.op
    feed = inquiry.feed()
    first, again = inquiry.ask(feed, feed, claim="returns")
    drawn = [result.outputs[0] for result in (first, again)]
    shape, dtype = op.made(*inquiry.arrays)
    law, eps = op.distribution(*inquiry.arrays), coarsest(dtype, *inquiry.arrays)

    def fault(kind: str, what: str) -> Any:
        """Of a sample as a whole, which no file with a few calls and their results shows."""
        return inquiry.subject.fault(kind, what, NO_CALLS)

    for y in drawn:
        if y.shape != shape:
            raise fault("shape", f"the result has the shape {y.shape}, not {shape}")
        if y.dtype.name != dtype:
            raise fault("dtype", f"the result is {y.dtype.name}, not {dtype}")
        if what := wrong(law, y, eps, ODDS / len(drawn)):
            raise fault("distribution", what)
    rare = log(ODDS / SHARES / len(drawn))
    telling = chance_of(law, drawn[0], eps) < rare
    same = np.array_equal(drawn[0], drawn[1])
    if op.seed is None:
        if same and telling:
            raise fault("cached", "two calls without a seed draw the same numbers")
        return Judgement(telling=telling)
    if not same and not client.about.nondeterministic[op.name]["outputs"]:
        what = "the same seed draws other numbers"
        raise inquiry.fault("nondeterministic", what, (feed, feed), "repeats")
    other = Inquiry("distribution", client, replace(case, op=op.with_(seed=op.seed + APART)))
    (result,) = other.ask(feed)
    if telling and np.array_equal(result.outputs[0], drawn[0]):
        raise fault("cached", "another seed draws the same numbers")
    return Judgement(telling=telling)


def coarsest(dtype: str, *inputs: Any) -> float:
    """The largest relative distance of neighbours in the floating-point dtypes of a call."""
    names = [dtype, *(x.dtype.name for x in inputs)]
    return max((float(finfo(dtype_of(n)).eps) for n in names if is_float(n)), default=0.0)
