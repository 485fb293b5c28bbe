"""Which samples make which batch: every sample once an epoch, the same on every machine.

A sampler is a value: `epoch(e)` gives the batches of epoch `e` as index arrays, whatever was asked
before, so that a run that is resumed in the middle sees what it would have seen. Orders come from
raw Philox words, whose stream NumPy promises to keep.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
TELLING = 13
"""Fewer samples may come in the order of another epoch by chance: 13! is 6e9."""


class Sampler(Protocol):
    """What the trainer needs. One that says `shuffles = True` has a new order in each epoch."""

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

    shuffles: ClassVar[bool] = True
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

    shuffles: ClassVar[bool] = True
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


def examine(
    samplers: Sequence[Any] | Callable[[], Sequence[Any]],
    samples: int,
    epochs: int = 3,
    *,
    shuffles: bool,
) -> None:
    """Raise `SamplingFault` unless these samplers, one a rank, see every sample once an epoch.

    Asked again they give the same batches; with `shuffles` each epoch has an order of its own. A
    function that makes them is called again, too: samplers that are new, as after a resume, and
    are asked for later epochs first, give the same batches.
    """
    held = samplers() if callable(samplers) else samplers
    name = type(held[0]).__name__
    orders = []
    for epoch in range(epochs):
        seen = [asked(sampler, epoch) for sampler in held]
        if wrong := astray(seen, samples):
            raise SamplingFault(f"{name}: epoch {epoch}: {wrong}")
        orders.append(_flat(seen))
    attempts = [(held, epoch, "asked again", "") for epoch in range(epochs)]
    if callable(samplers):
        anew, so = samplers(), ": a run that is resumed would be shuffled differently"
        attempts += [(anew, epoch, "made anew", so) for epoch in reversed(range(epochs))]
    for others, epoch, how, so in attempts:
        if not np.array_equal(_flat([asked(other, epoch) for other in others]), orders[epoch]):
            raise SamplingFault(f"{name}: {how}, epoch {epoch} is in another order{so}")
    same = [epoch for epoch in range(1, epochs) if np.array_equal(orders[epoch], orders[0])]
    if shuffles and samples >= TELLING and same:
        raise SamplingFault(f"{name}: epoch {same[0]} is in the order of epoch 0")


def asked(sampler: Any, epoch: int) -> list[Indices]:
    """The batches that a sampler has for an epoch. Raises `SamplingFault` if they are none."""
    name = type(sampler).__name__
    if not callable(getattr(sampler, "epoch", None)):
        raise SamplingFault(f"{name}: it has no epoch(number), the batches of an epoch")
    try:
        answer = sampler.epoch(epoch)
    except Exception as error:
        raise SamplingFault(f"{name}: epoch {epoch}: {type(error).__name__}: {error}") from error
    if not isinstance(answer, Sequence | np.ndarray) or not len(answer):
        raise SamplingFault(f"{name}: epoch {epoch}: {answer!r} is not a list of batches")
    batches = [np.asarray(batch) for batch in answer]
    for i, batch in enumerate(batches):
        if batch.ndim != 1 or not len(batch) or batch.dtype.kind not in "iu":
            raise SamplingFault(
                f"{name}: epoch {epoch}: batch {i} is not a list of indices: it has the shape "
                f"{batch.shape} and holds {batch.dtype}"
            )
    return batches


def astray(seen: Sequence[Sequence[Indices]], samples: int) -> str:
    """What is wrong with the batches of an epoch, by rank; empty if each sample is seen once."""
    order = _flat(seen)
    outside = order[(order < 0) | (order >= samples)]
    if len(outside):
        return f"there is no sample {outside[0]}, only {samples}"
    counts = np.bincount(order, minlength=samples)
    missing, repeated = np.flatnonzero(counts == 0), np.flatnonzero(counts > 1)
    words = []
    if len(missing):
        dropped = "" if len(repeated) else _dropped(seen, samples, len(missing))
        words.append(f"{dropped}{len(missing)} of {samples} samples are never seen")
    if len(repeated):
        where = _places(seen, repeated[0])
        words.append(f"sample {repeated[0]} is seen {counts[repeated[0]]} times, {where}")
    return "; ".join(words)


def _dropped(seen: Sequence[Sequence[Indices]], samples: int, missing: int) -> str:
    """Whether what is missing is what was left for each rank's last batch, or whole batches."""
    ranks, sizes = len(seen), {len(batch) for part in seen for batch in part}
    full = max(sizes)
    left = sum((samples // ranks + (rank < samples % ranks)) % full for rank in range(ranks))
    if sizes == {full} and missing == left:
        return "the last batch is dropped: "
    return "" if missing % full else "whole batches are dropped: "


def _places(seen: Sequence[Sequence[Indices]], sample: int) -> str:
    """The ranks that see a sample, or the batches where there is one rank, or one of them does."""
    places = [
        (rank, i) for rank, part in enumerate(seen) for i, batch in enumerate(part)
        for _ in range(np.count_nonzero(batch == sample))
    ]  # fmt: skip
    ranks = list(dict.fromkeys(rank for rank, _ in places))
    if len(ranks) > 1:
        return f"by ranks {' and '.join(map(str, ranks))}"
    return f"in batches {' and '.join(str(i) for _, i in places)}"


def _flat(seen: Sequence[Sequence[Indices]]) -> Indices:
    """The samples in their order, rank after rank."""
    return np.concatenate([batch for part in seen for batch in part])
