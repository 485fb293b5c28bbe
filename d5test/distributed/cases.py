"""Which allreduces are tried: drawn by Hypothesis, or, where ranks must agree, from a table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from d5test.case import Case, Tensor, is_float
from d5test.distributed.allreduce import LIBRARY, Allreduce

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")
Pick = Callable[[Sequence[Any]], Any]
"""One of a sequence."""

REGIMES = (("normal",), ("heavy",), ("offset",), ("nonzero",), ("ties",), ("tiny",))
HUGE = (("huge",),)
"""Whether a sum of these overflows depends on its order, which a library does not tell."""
WHOLE = (("within", 1000), ("ties",))
LARGE = (1000, 4099)
"""Lengths at which a library may take another algorithm than for a few elements."""


def one(algorithm: str, dtype: str, sizes: Sequence[int], pick: Pick) -> Case:
    """A case, by what `pick` picks. Lengths shorter than the ranks are many are frequent."""
    size = pick(sizes)
    near = (size - 1, size, size + 1, 2 * size)
    length = pick(pick((range(4), near, range(71), LARGE)))
    known = HUGE if algorithm != LIBRARY else ()
    values = pick((*REGIMES, *known) if is_float(dtype) else WHOLE)
    op = Allreduce(algorithm=algorithm, order=pick(range(10_000)))
    return Case(op, (Tensor((length,), dtype, values),) * size, seed=pick(range(10_000)))


def drawn(algorithm: str, sizes: Sequence[int], dtype: str) -> SearchStrategy[Case]:
    """Cases as Hypothesis draws them: small ones when it shrinks."""
    from hypothesis.strategies import composite, sampled_from

    @composite
    def cases(draw: DrawFn) -> Case:
        return one(algorithm, dtype, sizes, lambda choices: draw(sampled_from(choices)))

    return cases()


def table(algorithm: str, dtype: str, sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Cases without end, the same ones in every process."""
    chance = random.Random(f"{algorithm} {dtype} {seed}")
    return iter(partial(one, algorithm, dtype, sizes, chance.choice), None)
