"""Dropout on many ranks: what each has dropped, for the sequential run to drop the same.

Which numbers are dropped is a choice of a framework's generator. So it is read from what an
engine's dropout modules have left, rank by rank, and the run on one process multiplies by the same
factors: its losses, gradients and parameters are judged as those of any other training. Of what
was drawn the rate is judged, and that no two ranks and no two steps have drawn the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt

import numpy as np
import torch

from d5test.backends.base import Unsupported
from d5test.case import Array

DEVIATIONS = 6.0
"""Standard deviations that the share of dropped numbers may be off: once in 5e8 trainings."""
Kept = Sequence[Sequence[Array]]
"""By rank and dropout module: whether each number of its samples is left, (n, features)."""


@dataclass(frozen=True, eq=False)
class Drops:
    """Of all ranks, for the sequential run.

    kept     of each step
    factors  of each step, by module, for the joined minibatch: zero, or one over what is left
    """

    kept: Sequence[Kept]
    factors: Sequence[tuple[torch.Tensor, ...]]

    @classmethod
    def of(cls, kept: Sequence[Kept], shares: Sequence[Sequence[int]], rate: float) -> Drops:
        """Raises `Unsupported` where not each sample of a rank has passed once.

        shares  of each step, the samples of each rank
        """
        for step, sizes in zip(kept, shares, strict=True):
            for modules, size in zip(step, sizes, strict=True):
                passed = {len(each) for each in modules}
                if passed != {size}:
                    many = ", ".join(map(str, sorted(passed))) or "no"
                    raise Unsupported(f"its dropout saw {many} samples of a rank that has {size}")
        factors = [
            tuple(
                torch.from_numpy(np.concatenate(of_ranks) / (1 - rate))
                for of_ranks in zip(*step, strict=True)
            )
            for step in kept
        ]
        return cls(kept, factors)

    def odd(self, rate: float) -> Iterator[tuple[str, dict[str, str]]]:
        """What is wrong of what was drawn: in words, and details."""
        every = [each for step in self.kept for modules in step for each in modules]
        number = sum(each.size for each in every)
        dropped = number - sum(int(each.sum()) for each in every)
        if abs(dropped - rate * number) > DEVIATIONS * sqrt(rate * (1 - rate) * number):
            yield "dropout does not drop at its rate", {
                "dropped": f"{dropped} of {number} numbers", "rate": f"{rate:g}",
            }  # fmt: skip
        for step, modules in enumerate(self.kept, 1):
            for (one, mine), (other, theirs) in combinations(enumerate(modules), 2):
                if _alike(mine, theirs):
                    yield "two ranks drop the same numbers", {
                        "step": str(step), "ranks": f"{one} and {other}",
                    }  # fmt: skip
                    return
        for (first, before), (second, after) in combinations(enumerate(self.kept, 1), 2):
            for rank, (mine, later) in enumerate(zip(before, after, strict=True)):
                if _alike(mine, later):
                    yield "two steps drop the same numbers", {
                        "steps": f"{first} and {second}", "rank": str(rank),
                    }  # fmt: skip
                    return


def _alike(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Whether two have drawn the same, as far as both have samples."""
    return all(np.array_equal(a[: len(b)], b[: len(a)]) for a, b in zip(one, other, strict=True))
