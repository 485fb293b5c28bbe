"""Which sizes a case has: small ones that differ, or those at which kernels change.

A framework chooses its kernel by sizes, and a kernel has one body for whole vectors and tiles and
another for what is left over. So of 25 cases fifteen are of the kinds that are listed in `TURN`;
ten are small and pairwise different, so that an exchanged axis shows.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from math import prod
from typing import NamedTuple

from d5test.case import Case

MIXED, SMALL = "mixed", "small"
"""What can be asked for: all kinds of sizes, or the small and different ones alone."""
DIFFERENT = "different"
"""Small and pairwise different."""
TIED = "tied"
"""All equal: square images and kernels, n = m = k, heads of keys as wide as those of values."""
BOUNDARY = "boundary"
"""One side at a power of two, or a multiple of it, or one beside it."""
PAIR = "pair"
"""Two neighbouring sides that are equal and large."""
CHANNELS = "channels"
"""As many channels as networks have."""
DEPTHWISE = "depthwise"
"""A group of its own for each channel."""
GRAIN = "grain"
"""One side around the size from which elementwise loops run in parallel (ATen's grain, 32768)."""
RANKS = "ranks"
"""One or two axes more than usual."""
REAL = "real"
"""All sides those of a problem that is solved in practice, scaled down."""

LARGE = "large"
"""Samples repeated beyond 2^31 bytes or elements. Not drawn: checks of their own ask for it."""

TURN = (TIED,) * 3 + (BOUNDARY,) * 4 + (PAIR, REAL) * 2 + (CHANNELS, DEPTHWISE, GRAIN, RANKS)
"""The kinds of a turn, beside the small and different ones."""
OPTIONAL = frozenset({PAIR, CHANNELS, DEPTHWISE, GRAIN, RANKS, REAL})
"""Kinds that some operators do not have."""
TRIES = 5
"""Cases that are drawn of a kind until one shows it."""
DRAWS = 3 * TRIES
"""As many, with those that are drawn and not what is asked for, as a form asks for one rank."""
SMALL_SHARE = 0.4
"""The share of cases that are small and different."""
LARGEST = 132_000
"""Elements that an input may have; a case with more is not judged, and its kind is dealt again."""
WIDE = 64
"""Beside a larger side the others are at most 3."""

# TIES are sides of TIED, the next three of BOUNDARY in turns, PAIRS of PAIR, GRAINS of GRAIN, and
# CHANNEL_COUNTS of CHANNELS and DEPTHWISE
TIES = (3, 4, 5, 2, 8)
MODERATE = tuple(n + d for n in (8, 16, 32, 48, 64) for d in (0, 1, -1))
WIDER = tuple(n + d for n in (96, 128, 256) for d in (0, 1, -1))
LONG = (511, 781, 1024, 1025, 2047, 2049, 4097)
PAIRS = (16, 32, 33, 48, 64, 65, 96, 97)
CHANNEL_COUNTS = (8, 16, 24, 32, 64)
GRAINS = (32768, 32769, 32767)
GOLDEN = (5**0.5 - 1) / 2


class Seed(NamedTuple):
    """What the cases of a cell depend on.

    number    the cell's own
    operator  that of all cells of its operator, which begin at different places: the sides and the
              real problems that one leaves out another one has
    place     which of them it is
    """

    number: int
    operator: int = 0
    place: int = 0


@dataclass
class Sizes:
    """How the sides of a case are chosen, and what came of it.

    kind     one of the kinds above
    size     of the sides that it is about
    at       which side that is, in the order in which they are drawn, modulo `sides`
    single   whether there is one sample
    problem  that a real case is made like
    sides    how many sides a case of this operator may have; counted while it is drawn
    offered  which of the `OPTIONAL` kinds the operator has; noted while it is drawn
    reached  whether the case that was drawn last has what the kind asks for
    """

    kind: str = DIFFERENT
    size: int = 0
    at: int = 0
    single: bool = False
    problem: Case | None = None
    sides: int = 0
    offered: set[str] = field(default_factory=set)
    reached: bool = False

    def of(self, index: int) -> int | None:
        """The size of the side that is drawn at `index`, if the kind says it."""
        if self.kind == TIED:
            return self.size
        return self.size if index in self.chosen else None

    @property
    def chosen(self) -> range:
        """The sides that the kind is about, in the order in which they are drawn; perhaps none."""
        if self.kind not in (BOUNDARY, PAIR, GRAIN):
            return range(0)
        together = 2 if self.kind == PAIR else 1
        first = self.at % max(self.sides + 1 - together, 1)
        return range(first, first + together)

    def shown(self, shapes: Sequence[tuple[int, ...] | None]) -> bool:
        """Whether the case that was drawn last, with these shapes, is of this kind."""
        named = self.kind in (BOUNDARY, PAIR, GRAIN)
        return self.reached and (not named or any(self.size in (shape or ()) for shape in shapes))


class Deal:
    """Kinds of sizes for the cases of one cell, as evenly as possible, by a `seed`.

    The first `small` cases are small and different, the next are those of turns, which are
    shuffled. A kind is dealt until a case shows it, or `TRIES` times. Inputs that are larger than
    `largest` show nothing. `problems` are the operator's real ones, alike ones beside each other.
    """

    def __init__(
        self, seed: Seed, small: int, largest: int = LARGEST, problems: Sequence[Case] = ()
    ) -> None:
        problems = [p for p in problems if _most(p.shapes) <= largest]
        self._small = Sizes(offered={REAL} if problems else set())
        self._left = small
        self._largest = largest
        self._turns = _turns(seed, problems)
        self._next = self._small
        self._tries = self._draws = 0
        self._dealt = {0: self._small}
        self.last = self._small

    def sizes(self, key: int, fresh: bool) -> Sizes:
        """The sizes of a case by the first number that Hypothesis draws for it.

        One number always gets the same. 0, the simplest, gets small sizes, and so does each number
        that is met for the first time while a fault is reduced, when nothing is dealt `fresh`.
        """
        if key not in self._dealt:
            dealt = fresh and not self._left
            self._draws += dealt
            if self._draws > DRAWS:
                self._turn()
            self._dealt[key] = replace(self._next) if dealt else self._small
        self.last = self._dealt[key]
        return self.last

    def shown(self, shapes: Sequence[tuple[int, ...] | None]) -> bool:
        """Whether the case that was drawn last, with these shapes, is to be judged."""
        if self.last.kind == DIFFERENT:
            self._left = max(0, self._left - 1)
            shown = True
        else:
            shown = _most(shapes) <= self._largest and self.last.shown(shapes)
            self._tries += 1
        if not self._left and (shown or self._tries == TRIES):
            self._turn()
        return shown

    def _turn(self) -> None:
        """Deal the next kind that the operator has."""
        self._tries = self._draws = 0
        without = OPTIONAL - self._small.offered
        self._next = next(sizes for sizes in self._turns if sizes.kind not in without)
        self._next.sides = self._small.sides


def _most(shapes: Sequence[tuple[int, ...] | None]) -> int:
    """The elements of the largest input."""
    return max((prod(shape or ()) for shape in shapes), default=0)


def _turns(seed: Seed, problems: Sequence[Case]) -> Iterator[Sizes]:
    """Kinds of sizes without end: turns, shuffled by the cell's number."""
    source, common = random.Random(seed.number), random.Random(seed.operator)
    real = _spread(problems, common.random() + TURN.count(REAL) * seed.place * GOLDEN)

    def shuffled(options: tuple[int, ...]) -> Iterator[int]:
        return cycle(source.sample(options, len(options)))

    sizes = {
        TIED: shuffled(TIES), PAIR: shuffled(PAIRS), GRAIN: shuffled(GRAINS),
        CHANNELS: shuffled(CHANNEL_COUNTS), DEPTHWISE: shuffled(CHANNEL_COUNTS),
        RANKS: shuffled((1, 2)),
    }  # fmt: skip
    boundaries = [shuffled(MODERATE), shuffled(WIDER), shuffled(LONG)]
    common.shuffle(boundaries)
    classes = cycle(boundaries)
    at = dict.fromkeys(TURN, common.randrange(6) + seed.place)
    single = cycle((False, True))
    while True:
        for kind in source.sample(TURN, len(TURN)):
            if kind == REAL:
                yield Sizes(REAL, problem=next(real, None))
                continue
            at[kind] += 1
            size = next(next(classes) if kind == BOUNDARY else sizes[kind])
            yield Sizes(kind, size, at[kind], next(single))


def _spread(problems: Sequence[Case], place: float) -> Iterator[Case]:
    """Problems without end from all over the list, wherever one begins and stops.

    The steps are those of Weyl's sequence of the golden ratio: any few of them lie far apart.
    """
    while problems:
        yield problems[int(place % 1 * len(problems))]
        place += GOLDEN
