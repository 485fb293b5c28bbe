"""The collectives of `d5test.reference.semantics` by our algorithms, and what each costs.

Formulas count all ranks of a group together.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from d5test.reference.collectives import ALLREDUCE, SEGMENTS, Algorithm, Schedule
from d5test.reference.rooted import (
    binomial_broadcast,
    binomial_gather,
    binomial_reduce,
    binomial_scatter,
    chain_broadcast,
    equally,
    from_root,
    hierarchical_broadcast,
    linear_gather,
    linear_scatter,
    scattered_broadcast,
    scattered_reduce,
)
from d5test.reference.rootless import (
    bruck_all_to_all,
    bruck_allgather,
    by_allreduce,
    dissemination,
    doubling_allgather,
    exchange,
    halving_reduce_scatter,
    pairwise_all_to_all,
    pairwise_reduce_scatter,
    ring_allgather,
    ring_reduce_scatter,
    tree_barrier,
)
from d5test.reference.semantics import Layout

Body = Callable[[int, Layout, Any, Any], Schedule]
"""The schedule of a rank, by rank, layout, `x` and `y`."""


@dataclass(frozen=True)
class Scheduled:
    """A collective by one algorithm, and what it costs.

    body      its schedule
    messages  of all ranks, empty ones among them
    items     that all ranks send
    """

    body: Body
    messages: Callable[[Layout], int]
    items: Callable[[Layout], int]


def _rounds(p: int) -> int:
    return (p - 1).bit_length()


def _pairs(p: int) -> int:
    """Ranks beyond the largest power of two."""
    return p - (1 << p.bit_length() - 1)


def _folded_messages(layout: Layout) -> int:
    p = layout.size
    return 2 * _pairs(p) + (p - _pairs(p)) * (p.bit_length() - 1)


def _folded_items(layout: Layout) -> int:
    """Idle ranks: everything one way, their own blocks the other. Members: everything but once."""
    n, pairs = sum(layout.counts), _pairs(layout.size)
    return pairs * n + (layout.size - pairs - 1) * n + sum(layout.counts[: 2 * pairs : 2])


def _hops(counts: Iterable[int]) -> int:
    """Of blocks that go over the bits of their place, the items times the hops."""
    return sum(n * place.bit_count() for place, n in enumerate(counts))


def _tree_items(layout: Layout) -> int:
    return _hops(layout.counts[rank] for rank in from_root(layout))


def _all(layout: Layout) -> int:
    return (layout.size - 1) * sum(layout.counts)


def _others(layout: Layout) -> int:
    return sum(layout.counts) - layout.counts[layout.root]


def _one(layout: Layout) -> int:
    return layout.size - 1


def _each_pair(layout: Layout) -> int:
    return layout.size * (layout.size - 1)


def _each_round(layout: Layout) -> int:
    return layout.size * _rounds(layout.size)


def _between(layout: Layout) -> int:
    return sum(layout.counts) - sum(layout.counts[:: layout.size + 1])


def _bruck_items(layout: Layout) -> int:
    p = layout.size
    return sum(_hops(layout.row(i)[(i + d) % p] for d in range(p)) for i in range(p))


def _moved(layout: Layout) -> bool:
    return layout.root % layout.size != 0


def _tree_of_equal(layout: Layout) -> int:
    return _all(layout) + _tree_items(equally(layout, sum(layout.counts)))


def _allreduce(algorithm: Algorithm) -> Scheduled:
    return Scheduled(
        partial(by_allreduce, algorithm=algorithm),
        lambda layout: algorithm.messages(layout.size),
        lambda layout: algorithm.items(layout.size, sum(layout.counts)),
    )


SCHEDULES: Mapping[str, Mapping[str, Scheduled]] = {
    "broadcast": {
        "binomial": Scheduled(binomial_broadcast, _one, _all),
        "scatter_allgather": Scheduled(
            scattered_broadcast, lambda layout: _one(layout) + _each_pair(layout), _tree_of_equal
        ),
        "hierarchical": Scheduled(hierarchical_broadcast, _one, _all),
        "pipelined": Scheduled(chain_broadcast, lambda layout: SEGMENTS * _one(layout), _all),
    },
    "scatter": {
        "linear": Scheduled(linear_scatter, _one, _others),
        "binomial": Scheduled(binomial_scatter, _one, _tree_items),
    },
    "gather": {
        "linear": Scheduled(linear_gather, _one, _others),
        "binomial": Scheduled(binomial_gather, _one, _tree_items),
    },
    "allgather": {
        "ring": Scheduled(ring_allgather, _each_pair, _all),
        "recursive_doubling": Scheduled(doubling_allgather, _folded_messages, _folded_items),
        "bruck": Scheduled(bruck_allgather, _each_round, _all),
    },
    "all_to_all": {
        "pairwise": Scheduled(pairwise_all_to_all, _each_pair, _between),
        "bruck": Scheduled(bruck_all_to_all, _each_round, _bruck_items),
    },
    "send_receive": {
        "exchange": Scheduled(
            exchange,
            lambda layout: layout.size * _moved(layout),
            lambda layout: sum(layout.counts) * _moved(layout),
        ),
    },
    "reduce": {
        "binomial": Scheduled(binomial_reduce, _one, _all),
        "reduce_scatter_gather": Scheduled(
            scattered_reduce, lambda layout: _each_pair(layout) + _one(layout), _tree_of_equal
        ),
    },
    "allreduce": {name: _allreduce(algorithm) for name, algorithm in ALLREDUCE.items()},
    "reduce_scatter": {
        "ring": Scheduled(ring_reduce_scatter, _each_pair, _all),
        "pairwise": Scheduled(pairwise_reduce_scatter, _each_pair, _all),
        "recursive_halving": Scheduled(halving_reduce_scatter, _folded_messages, _folded_items),
    },
    "barrier": {
        "dissemination": Scheduled(dissemination, _each_round, lambda layout: 0),
        "binomial": Scheduled(tree_barrier, lambda layout: 2 * _one(layout), lambda layout: 0),
    },
}
"""By collective and algorithm. An algorithm that is added is judged on every communicator."""
