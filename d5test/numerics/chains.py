"""Sums of products that go on: what is added to one may stand in the same accumulator.

`x @ w + b` may begin with b, and `x @ w + h @ r` be one sum in any order. Then each term is
rounded at the size of all that is there, which may be much larger than its own product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Values = Any


@dataclass(frozen=True)
class Chain:
    """How many terms a sum of products has, and how its size is computed where it goes on.

    Sizes add up: of magnitudes, or of squares.
    """

    terms: int
    measure: Callable[[], Values]

    @cached_property
    def size(self) -> Values:
        return self.measure()

    def moved(self, function: Callable[[Values], Values]) -> Chain:
        """Of the sums that `function`, which only moves elements, makes of these."""
        return Chain(self.terms, lambda: function(self.size))

    def __add__(self, other: Chain) -> Chain:
        one, two = self.size, other.size  # not what they were computed of, which may be large
        return Chain(self.terms + other.terms, lambda: one + two)

    @classmethod
    def where(cls, condition: Any, one: Any, other: Any) -> Chain | None:
        """Of elements that are taken from one tracked array or from another one."""
        if not (one.chain or other.chain):
            return None
        a, b = one.as_chain(), other.as_chain()
        return cls(max(a.terms, b.terms), lambda: np.where(condition, a.size, b.size))
