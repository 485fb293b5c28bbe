"""What each collective is: what a rank has before, and what it must have after.

Requirements: a row says all that is judged, as a NumPy function of the arrays of all ranks, which
also runs on error bars; it knows no message and no rank of its own. Whatever moves these data so
is right, in whatever order it sends them.

Arrays are flat. `x` is what a rank has before, `y` what it must have after; where it has nothing,
or gets nothing, they have no elements. Names and meanings are MPI's (MPI 4.1, chapters 3 and 6).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Layout:
    """How many items go where among the ranks of one group.

    size    the ranks
    counts  items, as the collective counts them: (n,), one number a rank, or `size` numbers for
            each rank, what it has for rank 0, 1, ...
    root    the rank that has or gets all; of `send_receive`, how far a message goes
    """

    size: int
    counts: tuple[int, ...]
    root: int = 0

    def row(self, rank: int) -> tuple[int, ...]:
        """Of counts by pair: what a rank has for each."""
        return self.counts[rank * self.size : (rank + 1) * self.size]

    def column(self, rank: int) -> tuple[int, ...]:
        """Of counts by pair: what each has for a rank."""
        return self.counts[rank :: self.size]


def starts(counts: Sequence[int]) -> list[int]:
    """Where each block begins, and where the last one ends."""
    return [0, *accumulate(counts)]


def blocks(x: Any, counts: Sequence[int]) -> list[Any]:
    """Views of an array's blocks."""
    edges = starts(counts)
    return [x[start:end] for start, end in pairwise(edges)]


def _total(arrays: Sequence[Any]) -> Any:
    return np.stack(arrays).sum(axis=0)


def _at_root(layout: Layout, y: Any) -> list[Any]:
    return [y if rank == layout.root else y[:0] for rank in range(layout.size)]


def _exchanged(layout: Layout, arrays: Sequence[Any]) -> list[Any]:
    parts = [blocks(x, layout.row(rank)) for rank, x in enumerate(arrays)]
    return [np.concatenate(to_rank) for to_rank in zip(*parts, strict=True)]


def _passed_on(layout: Layout, arrays: Sequence[Any]) -> list[Any]:
    return [arrays[(rank - layout.root) % layout.size] for rank in range(layout.size)]


def _entered(layout: Layout, arrays: Sequence[Any]) -> list[Any]:
    return [np.ones(layout.size, x.dtype) for x in arrays]


@dataclass(frozen=True)
class Meaning:
    """One row.

    counted  what `Layout.counts` are: `one`, `rank` or `pair`
    before   `(layout, rank)`: elements of `x`
    after    `(layout, arrays)`: of all ranks' `x`, all ranks' `y`
    adds     whether it forms sums; others only move
    rooted   whether `Layout.root` says anything
    overlap  `(layout, rank)`: in place, where `x` and where `y` begin in one buffer; None: it has
             no such form
    even     whether its form in place needs counts that agree: by rank all the same, by pair the
             same both ways
    """

    counted: str
    before: Callable[[Layout, int], int]
    after: Callable[[Layout, Sequence[Any]], list[Any]]
    adds: bool = False
    rooted: bool = False
    overlap: Callable[[Layout, int], tuple[int, int]] | None = lambda layout, rank: (0, 0)
    even: bool = False

    def sizes(self, layout: Layout) -> list[tuple[int, int]]:
        """Elements of `x` and of `y`, rank by rank."""
        have = [self.before(layout, rank) for rank in range(layout.size)]
        get = self.after(layout, [np.zeros(n, np.int8) for n in have])
        return [(n, y.size) for n, y in zip(have, get, strict=True)]


def _each(layout: Layout, rank: int) -> int:
    return sum(layout.counts)


def _of_root(layout: Layout, rank: int) -> int:
    return sum(layout.counts) if rank == layout.root else 0


def _own(layout: Layout, rank: int) -> int:
    return layout.counts[rank]


def _own_block(layout: Layout, rank: int) -> int:
    return starts(layout.counts)[rank]


COLLECTIVES: Mapping[str, Meaning] = {
    "broadcast": Meaning(
        "one", _of_root, lambda layout, xs: [xs[layout.root]] * layout.size, rooted=True
    ),
    "scatter": Meaning(
        "rank",
        _of_root,
        lambda layout, xs: blocks(xs[layout.root], layout.counts),
        rooted=True,
        overlap=lambda layout, rank: (0, _own_block(layout, rank)),
    ),
    "gather": Meaning(
        "rank",
        _own,
        lambda layout, xs: _at_root(layout, np.concatenate(xs)),
        rooted=True,
        overlap=lambda layout, rank: (_own_block(layout, rank), 0),
    ),
    "allgather": Meaning(
        "rank",
        _own,
        lambda layout, xs: [np.concatenate(xs)] * layout.size,
        overlap=lambda layout, rank: (_own_block(layout, rank), 0),
    ),
    "all_to_all": Meaning(
        "pair", lambda layout, rank: sum(layout.row(rank)), _exchanged, even=True
    ),
    "send_receive": Meaning(
        "rank",
        _own,
        _passed_on,
        rooted=True,
        even=True,
    ),
    "reduce": Meaning(
        "one", _each, lambda layout, xs: _at_root(layout, _total(xs)), adds=True, rooted=True
    ),
    "allreduce": Meaning("one", _each, lambda layout, xs: [_total(xs)] * layout.size, adds=True),
    "reduce_scatter": Meaning(
        "rank", _each, lambda layout, xs: blocks(_total(xs), layout.counts), adds=True
    ),
    "barrier": Meaning("one", lambda layout, rank: 0, _entered, overlap=None),
}
"""By name. After a barrier, `y` is who has entered it as far as the rank can know: all."""
