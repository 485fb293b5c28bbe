"""Hypothesis made reproducible: what is drawn depends on the command line alone."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, ClassVar
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, Verbosity, core, settings
from hypothesis.internal import entropy
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers

from d5test.case import FLOATS
from d5test.strategies.sizes import Seed

CONSTANTS = "_get_local_constants"
CACHE = "CONSTANTS_CACHE"
SEEDED = "deterministic_PRNG"
EVEN = "d5test"
"""The name by which Hypothesis knows `Even`."""
FEW = 8
"""So many values at most are dealt; of more, one is drawn."""


class Even(providers.HypothesisProvider):  # type: ignore[misc]
    """Draws each whole number of a range, and each boolean, as likely as the others.

    Where there are few, each comes once before one comes twice: the n-th draw of each case is
    dealt from a hand of its own, so that of five cases not all have the same flag.

    A strategy of d5test says itself what is worth drawing often. So nothing is left to do for
    Hypothesis' own search: prefixes that are new, small examples first, favourite numbers, and
    copies of an example with one part in place of another, by which sizes become equal that were
    drawn to differ. Without them a case is drawn in six tenths of the time (six operators). A
    fault is reduced by Hypothesis.
    """

    hands: ClassVar[dict[tuple[int, int], list[int]]] = {}
    """What is left to deal, by which draw of a case it is, and of how many values."""

    def __init__(self, conjecturedata: Any) -> None:
        super().__init__(conjecturedata)
        self._drawn = 0

    def _dealt(self, count: int) -> int:
        self._drawn += 1
        hand = self.hands.setdefault((self._drawn, count), [])
        if not hand:
            hand.extend(range(count))
            self._random.shuffle(hand)
        return hand.pop()

    def draw_integer(
        self, min_value: int | None = None, max_value: int | None = None, **others: Any
    ) -> int:
        """A number of the range; without both ends, as Hypothesis draws it.

        The weights in `others` make the ends of a range more likely.
        """
        if min_value is None or max_value is None:
            drawn: int = super().draw_integer(min_value, max_value, **others)
            return drawn
        if max_value - min_value < FEW:
            return min_value + self._dealt(max_value - min_value + 1)
        return min_value + int(self._random.random() * (max_value - min_value + 1))

    def draw_boolean(self, p: float = 0.5) -> bool:
        """True with this probability."""
        if p == 0.5:
            return bool(self._dealt(2))
        return bool(self._random.random() < p)


providers.AVAILABLE_PROVIDERS[EVEN] = f"{__name__}.Even"
PROFILE = settings(
    backend=EVEN,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=tuple(HealthCheck),
    report_multiple_bugs=True,
    print_blob=False,
    verbosity=Verbosity.quiet,
)
"""The settings under which cases are drawn, whatever profile is loaded for other tests.

No deadline (a framework's first call compiles), no database (a run depends on its command line
alone), no explain phase (it runs a failing case about a hundred times more).
"""


@contextmanager
def reproducible_draws() -> Iterator[None]:
    """Without two habits of Hypothesis for which it has no setting.

    It collects the constants of every module outside of site-packages that happens to be loaded
    and draws them one time in forty. So another test before this one, a process of xdist, a rank
    of MPI or an installation in place of a clone would reduce a fault to another case.

    It saves, seeds and restores the generators of `random` and NumPy around each example, which
    takes a sixth of the time of drawing. Here that is done once, around all of them: a case is
    made of its own seed, and a backend runs in a process of its own.

    A version of Hypothesis without one of them has nothing to leave out.
    """
    Even.hands.clear()
    with ExitStack() as stack:
        if hasattr(providers, CONSTANTS) and hasattr(providers, CACHE):
            nothing = providers.Constants()
            stack.enter_context(patch.object(providers, CONSTANTS, lambda: nothing))
            stack.enter_context(patch.object(providers, CACHE, LRUCache(1024)))
        if hasattr(core, SEEDED):
            seed, restore = entropy.get_seeder_and_restorer()
            seed()
            stack.callback(restore)
            stack.enter_context(patch.object(core, SEEDED, nullcontext))
        yield


def seed_of_cell(
    check: Any, operator: str, dtype: str, *others: object, form: str = "", alike: bool = False
) -> Seed:
    """The seed of a check's cell. Where each new shape is compiled, all checks draw `alike`."""
    name, place = ("", 0) if alike else (check.name + form, check.place)
    return Seed(
        seed_of(name, operator, dtype, *others),
        seed_of(operator if alike else operator + form, *others),
        len(FLOATS) * place + FLOATS.index(dtype),
    )


def seed_of(*words: object) -> int:
    """A seed for Hypothesis from what names a cell; the same in a clone and in an installation."""
    digest = hashlib.sha256("|".join(map(str, words)).encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big")
