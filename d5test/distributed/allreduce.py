"""The operator Allreduce: what d5test's bars, controls and cases need to know of a collective.

Its inputs are the ranks' contributions, its outputs what the ranks have afterwards: input and
output `k` are rank `k`'s. So a case of it is a `Case` like any other, and a bar that runs through
the schedule knows the order of its summation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.case import Operator
from d5test.distributed.virtual import run, shuffled
from d5test.reference.collectives import ALLREDUCE

LIBRARY = "library"
"""The algorithm that a library chooses for itself: the sum may be formed in any order."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Allreduce(Operator):
    """The sum of n contributions, at every rank. Each is flat, and they are alike.

    algorithm  a name in `ALLREDUCE`, or `LIBRARY`
    order      which order of delivery virtual ranks have; other communicators have their own
    """

    domain = "d5test"
    algorithm: str
    order: int = 0

    def forward(self, *contributions: Any) -> Any:
        """One output a rank. Works on copies."""
        if self.algorithm == LIBRARY:
            return (np.stack(contributions).sum(axis=0),) * len(contributions)
        arrays = tuple(np.empty_like(x) for x in contributions)
        for array, x in zip(arrays, contributions, strict=True):
            array[...] = x
        schedule = ALLREDUCE[self.algorithm].schedule
        size = len(arrays)
        run([schedule(r, size, x) for r, x in enumerate(arrays)], shuffled(self.order))
        return arrays
