"""Which samples make which batch: every sample once an epoch, the same on every machine.

A sampler is a value: `epoch(e)` gives the batches of epoch `e` as index arrays, whatever was asked
before, so that a run that is resumed in the middle sees what it would have seen. Orders come from
raw Philox words, whose stream NumPy promises to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Sampler(Protocol):
    """What the trainer needs."""

    def epoch(self, number: int) -> list[Indices]:
        """The batches of an epoch, counted from 0."""


def batches(order: Indices, size: int) -> list[Indices]:
    """The order in batches of `size`; the last one has what is left."""
    return [order[i : i + size] for i in range(0, len(order), size)]


def shuffled(samples: int, seed: int, epoch: int) -> Indices:
    """A permutation of 0 .. samples - 1."""
    words = np.random.Philox(key=[seed, epoch]).random_raw(samples)
    return np.argsort(words, kind="stable").astype(np.int64)


@dataclass(frozen=True)
class SequentialSampler:
    """The samples as they lie there."""

    samples: int
    batch: int

    def epoch(self, number: int) -> list[Indices]:
        """The same in every epoch."""
        return batches(np.arange(self.samples, dtype=np.int64), self.batch)


@dataclass(frozen=True)
class ShuffleSampler:
    """A new order in each epoch, from `seed` and the epoch's number."""

    samples: int
    batch: int
    seed: int = 0

    def epoch(self, number: int) -> list[Indices]:
        """The batches of an epoch."""
        return batches(shuffled(self.samples, self.seed, number), self.batch)


@dataclass(frozen=True)
class DistributedSampler:
    """The part of one of `ranks` ranks: together they see every sample once an epoch.

    `batch` is that of one rank. The first ranks have one sample more where ranks do not divide
    the samples.
    """

    samples: int
    batch: int
    rank: int
    ranks: int
    seed: int = 0

    def epoch(self, number: int) -> list[Indices]:
        """The batches of this rank."""
        return batches(
            shuffled(self.samples, self.seed, number)[self.rank :: self.ranks], self.batch
        )


class SamplingFault(AssertionError):
    """A sampler that does not do what samplers promise; the text says what it does instead."""


def examine(samplers: Sequence[Any], samples: int, epochs: int = 3, *, shuffles: bool) -> None:
    """Raise `SamplingFault` unless these samplers, one a rank, see every sample once an epoch.

    Asked again they give the same batches; with `shuffles` each epoch has an order of its own.
    """
    orders = []
    for epoch in range(epochs):
        seen = [sampler.epoch(epoch) for sampler in samplers]
        orders.append(np.concatenate([batch for part in seen for batch in part]))
        _every_once(orders[-1], samples, seen, f"epoch {epoch}")
    for epoch, order in enumerate(orders):
        again = [batch for sampler in samplers for batch in sampler.epoch(epoch)]
        if not np.array_equal(np.concatenate(again), order):
            raise SamplingFault(f"asked again, epoch {epoch} is in another order")
    same = [epoch for epoch in range(1, epochs) if np.array_equal(orders[epoch], orders[0])]
    if shuffles and same:
        raise SamplingFault(f"epoch {same[0]} is in the order of epoch 0")


def _every_once(
    order: Indices, samples: int, seen: Sequence[Sequence[Indices]], where: str
) -> None:
    outside = order[(order < 0) | (order >= samples)]
    if len(outside):
        raise SamplingFault(f"{where}: there is no sample {outside[0]}, only {samples}")
    counts = np.bincount(order, minlength=samples)
    missing, repeated = np.flatnonzero(counts == 0), np.flatnonzero(counts > 1)
    if len(missing):
        sizes = {len(batch) for part in seen for batch in part}
        left = samples % max(sizes)
        dropped = len(sizes) == 1 and len(missing) == left
        what = "the last batch is dropped: " if dropped else ""
        raise SamplingFault(f"{where}: {what}{len(missing)} of {samples} samples are never seen")
    if len(repeated):
        raise SamplingFault(f"{where}: sample {repeated[0]} is seen {counts[repeated[0]]} times")
