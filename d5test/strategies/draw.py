"""What a strategy draws with: sizes, attributes and recipes of tensors, for one dtype.

An ordinary draw is never degenerate: sizes are small, at least 2 and pairwise different, so that
an exchanged axis shows, or of another kind (`d5test.strategies.sizes`). A degenerate draw has
sizes of one, of zero where the strategy permits it, and scalars. Everything shrinks towards what
is simplest: the smallest sizes, the first choice, an option left out, normal values.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from d5test.case import NORMAL, Tensor
from d5test.strategies.sizes import (
    CHANNELS,
    DEPTHWISE,
    DIFFERENT,
    GRAIN,
    PAIR,
    RANKS,
    TIED,
    WIDE,
    Sizes,
)
from d5test.values import REGIMES

T = TypeVar("T")
Shape = tuple[int, ...]
Regime = str | tuple[Any, ...]

ORDINARY: tuple[Regime, ...] = ("normal", "heavy", "uniform", "onehot", "ties")
"""The regimes of an input on which its operator puts no condition."""
SINGLE = ("onehot",)
NEGATIVE: Regime = ("uniform", -4, -1)
FAR_BELOW: Regime = ("far", -1)
FAR_ABOVE: Regime = ("far", 1)
"""Values of which the largest is not the zero that a kernel may begin with."""
LARGER: Regime = ("scaled", 8)
"""Values beside which a sum of products is small."""

BEYOND: Mapping[str, frozenset[str]] = MappingProxyType(
    {"float16": frozenset({"heavy", "offset"}), "bfloat16": frozenset({"offset"})}
)
"""Regimes whose sums of squares overflow a dtype, or whose spread is below its spacing."""


MANY = 199
"""Terms of a sum that shows in which format it runs; no vector and no tile divides them."""
MORE = 1031
"""As many for those that run in parts, of 512 terms or so."""
LONG = 4096
"""Terms of a sum of exponentials, each off by up to 4 ULPs, that still shows its format."""


_FLAGS = st.booleans()
_integers = cache(st.integers)
_indices = cache(lambda n: st.sampled_from(range(n)))
"""A strategy for each range, made once: to make it costs as much as to draw from it."""


class Draw:
    """Hypothesis' draw in the words of operators, for values of `dtype`.

    `degenerate` asks for the shapes at the border: empty, scalar, of size one; `sizes` for sides
    at which kernels change; `plain` for attributes of which most are the simplest, and optional
    inputs of which most are left out, as fast paths want it.
    """

    def __init__(
        self,
        draw: DrawFn,
        dtype: str,
        degenerate: bool = False,
        sizes: Sizes | None = None,
        plain: bool = False,
    ) -> None:
        self._draw = draw
        self._plain = plain
        self._taken: set[int] = set()
        self._drawn = 0
        self.dtype = dtype
        self.degenerate = degenerate
        self.sizes = sizes or Sizes()
        self.sizes.reached = False

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included: a stride, a padding, a kernel."""
        return self._draw(_integers(low, high))

    def flag(self) -> bool:
        """False or True; in a plain draw True one time in four."""
        return self._draw(_FLAGS) and not (self._plain and self._draw(_FLAGS))

    def choose(self, options: Iterable[T]) -> T:
        """One of `options`; the first is the simplest, which a plain draw prefers."""
        choices = tuple(options)
        if self._plain and len(choices) > 1 and not self._draw(_FLAGS):
            return choices[0]
        return self.any_of(choices)

    def any_of(self, choices: Sequence[T]) -> T:
        """One of `choices`, each as often in a plain draw: of numbers, not of attributes."""
        return choices[self._draw(_indices(len(choices)))] if len(choices) > 1 else choices[0]

    def maybe(self, option: T) -> T | None:
        """`option`, or None: left out."""
        return option if self.flag() else None

    def many(self) -> bool:
        """Whether a sum is to have `MANY` terms, or `LONG`, all positive: in 16 bits one in four.

        A sum that runs in storage loses them. Of a few terms it is as good as one in float32
        whose products were rounded to storage.
        """
        ample = self.dtype in BEYOND and not self.degenerate
        return ample and self.any_of((False, False, False, True))

    def real(self, low: float, high: float) -> float:
        """A number in steps of 1/16 between `low` and `high`: an alpha, a slope; exact in float32.

        `d.real(0, 1)` may be 0.3125.
        """
        return self.integer(round(16 * low), round(16 * high)) / 16

    def real_or(self, low: float, high: float, *usual: float) -> float:
        """One of `usual`, or a number as `real` draws it."""
        return self.choose((*usual, self.real(low, high)))

    def side(
        self, least: int = 1, most: int = 6, *, empty: bool = False, few: bool = False
    ) -> int:
        """The size of one dimension, unlike those drawn before while there is a choice.

        At least 2, unless the draw is degenerate; 0 only with `empty` (or `least=0`). It is more
        than `most` where the case is about large sides, but for a number of steps or parts, which
        stays `few`.
        """
        return self.sides(1, least, most, empty=empty, few=few)[0]

    def sides(
        self,
        n: int,
        least: int = 1,
        most: int = 6,
        *,
        empty: bool = False,
        few: bool = False,
        grain: bool = False,
    ) -> Shape:
        """The sizes of `n` dimensions, pairwise different: `d.sides(3)` may be `(2, 5, 3)`.

        In a degenerate draw some are 1 where `least` allows it, and 0 with `empty` (or `least=0`).
        With `grain` one of them may be as long as a loop that runs in parallel.
        """
        most = min(most, max(least, 3)) if self.sizes.size > WIDE else most
        low = max(least, 2) if most >= 2 else least
        high = max(most, low + n - 1)
        free = [size for size in range(low, high + 1) if size not in self._taken]
        if len(free) < n:
            free = list(range(low, high + 1))
        sides = [free.pop(self.integer(0, len(free) - 1)) for _ in range(n)]
        self._taken.update(sides)
        if self.degenerate:
            border = [size for size in (1, 0) if size >= least or (size == 0 and empty)]
            sides = [self.any_of([*border, side, side]) for side in sides]
        elif not few:
            sides = [self._of_kind(side, least, most, grain) for side in sides]
        return tuple(sides)

    def _of_kind(self, side: int, least: int, most: int, grain: bool) -> int:
        """`side`, or the size that this case is about."""
        sizes, index = self.sizes, self._drawn
        self._drawn += 1
        if grain:
            sizes.offered.add(GRAIN)
        if sizes.kind == GRAIN and index not in sizes.chosen:
            return max(least, 2 if index == (0 in sizes.chosen) else 1)
        size = sizes.of(index)
        if size is None or (sizes.kind == GRAIN and not grain):
            return side
        sizes.reached = index > 0 if sizes.kind == TIED else index == sizes.chosen[-1]
        return max(least, size)

    def finish(self) -> None:
        """Note how many sides there were."""
        if self.sizes.kind == DIFFERENT:
            self.sizes.sides = max(self.sizes.sides, self._drawn)
            if self._drawn > 1:
                self.sizes.offered.add(PAIR)

    def samples(self, most: int = 6, *, empty: bool = False) -> int:
        """A number of samples: as `side`, or 1 where the case is about that."""
        before = self.sizes.reached
        side = self.side(most=most, empty=empty)
        kept = self.degenerate or self.sizes.reached != before
        return 1 if self.sizes.single and not kept else side

    def channels(self, n: int, most: int) -> Shape:
        """`n` numbers of channels: as `sides`, or as many as networks have."""
        sides = self.sides(n, most=most)
        self.sizes.offered.add(CHANNELS)
        if self.sizes.kind != CHANNELS or self.degenerate:
            return sides
        self.sizes.reached = True
        return (self.sizes.size,) * n

    def groups(self, most: int) -> int:
        """A number of groups of channels; many where the case is about depthwise kernels.

        Groups of as many channels as networks have are one, or some power of two.
        """
        few = self.integer(1, most)
        self.sizes.offered.add(DEPTHWISE)
        if self.degenerate or self.sizes.kind not in (DEPTHWISE, CHANNELS):
            return few
        if self.sizes.kind == CHANNELS:
            return 1 if few == 1 else 2**few
        self.sizes.reached = True
        return self.sizes.size

    def vector(self, n: int, low: int, high: int) -> Shape:
        """An attribute along n axes; where sizes are tied, the same along each."""
        drawn = tuple(self.integer(low, high) for _ in range(n))
        return drawn[:1] * n if self.sizes.kind == TIED else drawn

    def rank(self, least: int, most: int) -> int:
        """A number of dimensions; 0, a scalar, only in a degenerate draw."""
        if not self.degenerate:  # as many as the kind of sizes asks for
            sides = (
                self.sizes.chosen[-1] + 1 if self.sizes.chosen else 1 + (self.sizes.kind == TIED)
            )
            least = max(least, min(max(sides - self._drawn, 1), most))
        return self.integer(least, most)

    def shape(self, least: int = 1, most: int = 4, *, empty: bool = True) -> Shape:
        """A shape with `least` to `most` dimensions; see `rank` and `sides`."""
        rank = self.rank(least, most)
        self.sizes.offered.add(RANKS)
        if self.sizes.kind == RANKS and not self.degenerate:
            self.sizes.reached = True
            rank = most + self.sizes.size
            return self.sides(rank, most=rank - 1)
        return self.sides(rank, empty=empty, grain=True)

    def axis(self, rank: int) -> int:
        """An axis of a tensor with `rank` dimensions, counted from either end; the last first."""
        axis: int = self.choose((*range(-1, -rank - 1, -1), *range(rank)))
        return axis

    def rank_with(self, axis: int, most: int = 4) -> int:
        """A number of dimensions, `most` if that is enough, with which a tensor has this axis."""
        least = -axis if axis < 0 else axis + 1
        return self.rank(least, max(least, most))

    def any_axis(self, most: int) -> int:
        """An axis of a tensor with up to `most` dimensions, counted from either end."""
        return self.axis(self.integer(1, most))

    def broadcastable(self, shape: Shape) -> Shape:
        """A shape that broadcasts to `shape`: leading dimensions left out, others 1.

        `d.broadcastable((2, 3, 5))` may be `(3, 5)`, `(2, 1, 5)`, `(3, 1)` or `()`.
        """
        kept = shape[self.integer(0, len(shape)) :]
        return tuple(1 if self.flag() else size for size in kept)

    def tensor(self, shape: Shape, *regimes: Regime, dtype: str | None = None) -> Tensor:
        """A tensor in the dtype under test, its values from one of `regimes`.

        A regime is a name of `d5test.values.REGIMES` or a tuple of it and its parameters; regimes
        that the dtype cannot hold are passed over while there are others.
        """
        named = [
            (regime,) if isinstance(regime, str) else regime for regime in regimes or ORDINARY
        ]
        for regime in named:
            if regime[0] not in REGIMES:
                raise ValueError(f"no value regime {regime[0]!r}; there are {', '.join(REGIMES)}")
        dtype = self.dtype if dtype is None else dtype
        beyond = BEYOND.get(dtype, frozenset())
        fitting = [regime for regime in named if regime[0] not in beyond]
        return Tensor(tuple(shape), dtype, self.any_of(fitting or named))

    def factors(self, *shapes: Shape) -> tuple[Tensor, ...]:
        """Tensors of which products are summed: one at most has a single element.

        Of two such the sum is zero nearly everywhere, whatever computes it.
        """
        drawn: list[Tensor] = []
        for tensor in map(self.tensor, shapes):
            single = tensor.values == SINGLE and any(t.values == SINGLE for t in drawn)
            drawn.append(replace(tensor, values=NORMAL) if single else tensor)
        return tuple(drawn)

    def addend(self, shape: Shape) -> Tensor:
        """A tensor that is added to sums of products, in 16 bits also one that outweighs them.

        Where a sum may run in storage, its bar hides a number that is no larger than its terms.
        """
        return self.tensor(shape, *ORDINARY, *((LARGER,) if self.dtype in BEYOND else ()))

    def index(
        self, shape: Shape, limit: int, *, negative: bool = False, dtype: str = "int64"
    ) -> Tensor:
        """Indices below `limit`; with `negative` they may count from the end."""
        return Tensor(tuple(shape), dtype, ("within" if negative else "below", limit))

    def mask(self, shape: Shape, share: float = 0.5) -> Tensor:
        """Booleans, about `share` of them true."""
        return Tensor(tuple(shape), "bool", ("mask", share))

    def literal(
        self, values: Sequence[Any] | float, dtype: str = "int64", shape: Shape | None = None
    ) -> Tensor:
        """These values: a vector (axes, a shape, paddings), a scalar, or of `shape` in rows."""
        if isinstance(values, int | float):
            return Tensor((), dtype, data=(values,))
        return Tensor((len(values),) if shape is None else tuple(shape), dtype, data=tuple(values))

    def again(self, tensor: Tensor, position: int) -> Tensor:
        """`tensor`, which is the input at `position`, passed once more as the same object."""
        return replace(tensor, same_as=position)
