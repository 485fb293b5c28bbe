"""Dropout on many ranks: what each has dropped, for the sequential run to drop the same.

Which numbers are dropped is a choice of a framework's generator. So it is read from what an
engine's dropout modules have left, rank by rank, and the run on one process multiplies by the same
factors: its losses, gradients and parameters are judged as those of any other training. Of what
was drawn the rate is judged, and that no two forward passes have drawn the same: those of two
ranks, of two steps, of two parts of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from typing import NamedTuple

import numpy as np
import torch

from d5test.backends.base import Unsupported
from d5test.case import Array

DEVIATIONS = 6.0
"""Standard deviations that the share of dropped numbers may be off: once in 5e8 trainings."""
Kept = Sequence[Sequence[Sequence[Array]]]
"""By rank, dropout module and forward pass: whether each number of its samples is left, (n,
features)."""


@dataclass(frozen=True, eq=False)
class Drops:
    """Of all ranks, for the sequential run.

    kept     of each step
    factors  of each step, by module, for the joined minibatch: zero, or one over what is left
    """

    kept: Sequence[Kept]
    factors: Sequence[tuple[torch.Tensor, ...]]

    @classmethod
    def of(
        cls,
        kept: Sequence[Kept],
        orders: Sequence[Sequence[Sequence[int]]],
        shares: Sequence[Sequence[int]],
        rate: float,
    ) -> Drops:
        """Raises `Unsupported` where not each sample of a rank has passed once.

        orders  of each step and rank, the samples of its share as they have passed; where they
                cannot be told they are taken for those of its share, in order
        shares  of each step, the samples of each rank
        """
        for sizes, step in zip(shares, kept, strict=True):
            for size, modules in zip(sizes, step, strict=True):
                passed = {sum(map(len, passes)) for passes in modules}
                if passed != {size}:
                    many = ", ".join(map(str, sorted(passed))) or "no"
                    raise Unsupported(f"its dropout saw {many} samples of a rank that has {size}")
        factors = [
            tuple(
                torch.from_numpy(np.concatenate([*map(_in_order, passes, order)]) / (1 - rate))
                for passes in zip(*ranks, strict=True)
            )
            for ranks, order in zip(kept, orders, strict=True)
        ]
        return cls(kept, factors)

    def odd(self, rate: float) -> Iterator[tuple[str, dict[str, str]]]:
        """What is wrong of what was drawn: in words, and details."""
        every = [a for step in self.kept for modules in step for passes in modules for a in passes]
        number = sum(each.size for each in every)
        dropped = number - sum(int(each.sum()) for each in every)
        if abs(dropped - rate * number) > DEVIATIONS * sqrt(rate * (1 - rate) * number):
            yield "dropout does not drop at its rate", {
                "dropped": f"{dropped} of {number} numbers", "rate": f"{rate:g}",
            }  # fmt: skip
        named: set[str] = set()
        for (one, mine), (other, theirs) in combinations(self._passes(), 2):
            who = _differing(one, other)
            if who not in named and _alike(mine, theirs):
                named.add(who)
                yield f"{who} drop the same numbers", {"first": str(one), "second": str(other)}

    def _passes(self) -> Iterator[tuple[Pass, Sequence[Array]]]:
        """Each forward pass, with what each module has left in it."""
        for step, ranks in enumerate(self.kept, 1):
            for rank, modules in enumerate(ranks):
                for part, arrays in enumerate(zip(*modules, strict=False), 1):
                    yield Pass(step, rank, part), arrays


def _in_order(passes: Sequence[Array], order: Sequence[int]) -> Array:
    """Of a module, the samples of a rank as they are in its share."""
    passed = np.concatenate(passes)
    known = sorted(order) == [*range(len(passed))]
    return passed[np.argsort(order)] if known else passed


class Pass(NamedTuple):
    """A forward pass: of a part of a rank's share in a step."""

    step: int
    rank: int
    part: int

    def __str__(self) -> str:
        return f"step {self.step}, rank {self.rank}, part {self.part}"


def _differing(one: Pass, other: Pass) -> str:
    """How two passes differ, in words."""
    if one.rank == other.rank:
        return "two parts of a step" if one.step == other.step else "two steps"
    return "two ranks" if one.step == other.step else "two ranks in different steps"


def _alike(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Whether two have drawn the same, as far as both have samples.

    Two of n numbers are alike by chance once in 1.6^n times at a rate of 1/4: n is 96 where a rank
    takes two samples at once.
    """
    return all(np.array_equal(a[: len(b)], b[: len(a)]) for a, b in zip(one, other, strict=True))
