"""Which cases are tried: drawn by Hypothesis, or, where ranks must agree, from a table.

A case is described once, by what a `pick` picks out of sequences.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from d5test.case import Case, Tensor, is_float
from d5test.distributed.allreduce import LIBRARY, Allreduce
from d5test.distributed.descent import Descent
from d5test.distributed.inquiry import Pick, Property
from d5test.reference.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

REGIMES = (("normal",), ("heavy",), ("offset",), ("nonzero",), ("ties",), ("tiny",))
HUGE = (("huge",),)
"""Whether a sum of these overflows depends on its order, which a library does not tell."""
WHOLE = (("within", 1000), ("ties",))
LARGE = (1000, 4099)
"""Lengths at which a library may take another algorithm than for a few elements."""
ANYTHING = range(10_000)
"""Seeds, and orders of delivery."""


def allreduce(algorithm: str, dtype: str, sizes: Sequence[int], pick: Pick) -> Case:
    """A sum. Lengths shorter than the ranks are many are frequent."""
    size = pick(sizes)
    near = (size - 1, size, size + 1, 2 * size)
    length = pick(pick((range(4), near, range(71), LARGE)))
    known = HUGE if algorithm != LIBRARY else ()
    values = pick((*REGIMES, *known) if is_float(dtype) else WHOLE)
    op = Allreduce(algorithm=algorithm, order=pick(ANYTHING))
    return Case(op, (Tensor((length,), dtype, values),) * size, seed=pick(ANYTHING))


def descent(optimizer: str, dtype: str, sizes: Sequence[int], pick: Pick) -> Case:
    """A few steps over any base optimizer. More parameters than samples, and fewer."""
    size, n, samples, steps = pick(sizes), pick(range(1, 12)), pick(range(1, 6)), pick(range(1, 5))
    op = Descent(optimizer=optimizer, base=pick(tuple(OPTIMIZERS)), steps=steps,
                 order=pick(ANYTHING))  # fmt: skip
    minibatches = Tensor((steps, samples, n), dtype), Tensor((steps, samples), dtype)
    return Case(op, (Tensor((n,), dtype), *minibatches * size), seed=pick(ANYTHING))


def drawn(check: Property, subject: str, sizes: Sequence[int], dtype: str) -> SearchStrategy[Case]:
    """Cases as Hypothesis draws them: small ones when it shrinks."""
    from hypothesis.strategies import composite, sampled_from

    @composite
    def cases(draw: DrawFn) -> Case:
        return check.one(subject, dtype, sizes, lambda choices: draw(sampled_from(choices)))

    return cases()


def table(
    check: Property, subject: str, sizes: Sequence[int], dtype: str, seed: int
) -> Iterator[Case]:
    """Cases without end, the same ones in every process."""
    chance = random.Random(f"{subject} {dtype} {seed}")
    while True:
        yield check.one(subject, dtype, sizes, chance.choice)
