"""Which gradients a case asks for: of all inputs or of one alone, and under which upstream ones.

A gradient is linear in the upstream ones: times 2^20 it is times 2^20, of zeros it is zero, of one
element it is a row of the Jacobian, of ones it is that of a sum. What is added to it, or rounded
in absolute terms, shows. Where one input alone wants a gradient, a framework leaves out what the
others would need.
"""

import random
from dataclasses import replace
from itertools import cycle

from d5test.case import NORMAL, Case

EVERY = 3
"""One case in so many has other upstream gradients than normal ones; and another one input alone
that wants a gradient."""
EXPONENT, IN_HALF = 20, 5
"""Of the powers of two by which they are scaled; float16 ends at 2^16 and 2^-24."""


def kinds(dtype: str) -> tuple[tuple[object, ...], ...]:
    """The other regimes of upstream gradients in a dtype."""
    exponent = IN_HALF if dtype == "float16" else EXPONENT
    heavy = () if dtype == "float16" else (("heavy",),)  # its sums overflow
    scaled = (("scaled", exponent), ("scaled", -exponent))
    return (*scaled, ("onehot",), ("constant", 0.0), ("constant", 1.0), *heavy)


class Upstreams:
    """What the cases of one cell ask for, in turns that the seed `number` shuffles.

    A case is known by its seed: drawn again, it has the same ones.
    """

    def __init__(self, number: int, dtype: str) -> None:
        source = random.Random(number)
        every = kinds(dtype)
        self._turn = cycle(source.sample(every, len(every)))
        self._dealt: dict[int, tuple[tuple[object, ...], bool]] = {}

    def given(self, case: Case, fresh: bool) -> Case:
        """The case with its upstream gradients, and perhaps one input alone that wants one.

        Normal ones of all, the simplest, get those that are met for the first time while a fault
        is reduced, when nothing is dealt `fresh`.
        """
        if case.seed not in self._dealt:
            place = len(self._dealt) % EVERY if fresh else 0
            dy = next(self._turn) if place == EVERY - 1 else NORMAL
            self._dealt[case.seed] = dy, place == EVERY - 2
        dy, single = self._dealt[case.seed]
        places = case.pullable
        alone = places[case.seed % len(places)] if single and len(places) > 1 else None
        return replace(case, dy=dy, alone=alone)
