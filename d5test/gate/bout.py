"""A benchmark in one session, and how much longer it took on one arm than on others.

Two estimates: where one is wide, the other often is not. Both change their sign when the arms are
exchanged, and so does the choice: identical code is as often called faster as it is called slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import hypot, inf, sqrt

import numpy as np
from numpy.typing import NDArray

from d5test.timed import Entry

Values = NDArray[np.float64]
FASTEST = 0.1
"""The share of rounds that are as good as undisturbed."""
RESAMPLES = 100
"""How often the blocks are drawn again, to see what an estimate errs by."""
APART = 2
"""Two estimates that differ by as many times their errors contradict each other."""


@dataclass(frozen=True)
class Shift:
    """A logarithm of a quotient, and its standard error."""

    size: float
    error: float


@dataclass
class Bout:
    """A benchmark in one session: what each arm recorded, or why it has nothing.

    blocks  seconds a call, of each arm; in the k-th turn of a block all arms were timed at once
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, list[list[float]]] = field(default_factory=dict)

    def longer(self, arm: str, others: Sequence[str]) -> Shift:
        """By how much an arm took longer than the mean of others, in the better estimate.

        One is the median of the blocks' quotients, each the median of those of its turns: the
        turns share the load, the clock and the temperature, the blocks do not share a layout of
        memory. The other is the quotient of the fastest tenths of all rounds, which others have
        not disturbed. A version that is slower in some of its rounds only has both contradict
        each other: then the median speaks, whatever it errs by.
        """
        ours, *theirs = (np.log(self.blocks[name]) for name in (arm, *others))
        blocks = len(ours)
        again = np.random.default_rng(0).integers(blocks, size=(RESAMPLES, blocks))
        chosen = np.vstack([np.arange(blocks), again])
        turns = _shift(np.median(_in_turn(ours, theirs)[chosen], axis=1), blocks)
        against = np.mean([_fastest(rounds[chosen]) for rounds in theirs], axis=0)
        fastest = _shift(_fastest(ours[chosen]) - against, blocks)
        apart = abs(turns.size - fastest.size) > APART * hypot(turns.error, fastest.error)
        return turns if apart or turns.error <= fastest.error else fastest


def _in_turn(ours: Values, theirs: Sequence[Values]) -> Values:
    """Of each block, the quotient in the median of its turns.

    One arm is compared with one other, and the mean taken then: what disturbs a round only makes
    it longer, and the median of a mean of two such rounds lies above that of one.
    """
    quotients = [np.median(ours - rounds, axis=1) for rounds in theirs]
    return np.asarray(np.mean(quotients, axis=0))


def _fastest(rounds: Values) -> Values:
    """The end of the fastest tenth, of each choice of blocks."""
    return np.asarray(np.quantile(rounds.reshape(len(rounds), -1), FASTEST, axis=1))


def _shift(estimates: Values, blocks: int) -> Shift:
    """The first is that of the blocks as they were; the others' spread is its error."""
    if blocks < 2:
        return Shift(float(estimates[0]), inf)
    return Shift(float(estimates[0]), float(np.std(estimates[1:])) * sqrt(blocks / (blocks - 1)))
