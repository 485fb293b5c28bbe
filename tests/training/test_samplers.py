"""Samplers see every sample once an epoch; those that do not are found and named."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from d5test.training.samplers import (
    DistributedSampler,
    SamplingFault,
    SequentialSampler,
    ShuffleSampler,
    examine,
    shuffled,
)

SAMPLES = 437


@pytest.mark.parametrize("batch", [1, 19, 64, 437, 500])
def test_every_sample_once(batch: int) -> None:
    examine([SequentialSampler(SAMPLES, batch)], SAMPLES, shuffles=False)
    examine([ShuffleSampler(SAMPLES, batch, seed=3)], SAMPLES, shuffles=True)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_ranks_share_an_epoch(ranks: int) -> None:
    parts = [DistributedSampler(SAMPLES, 16, rank, ranks, seed=3) for rank in range(ranks)]
    examine(parts, SAMPLES, shuffles=True)
    sizes = [sum(map(len, part.epoch(0))) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_the_order_is_the_same_everywhere() -> None:
    assert shuffled(10, seed=1, epoch=2).tolist() == [4, 2, 0, 6, 1, 5, 9, 8, 7, 3]
    assert not np.array_equal(shuffled(SAMPLES, 1, 0), shuffled(SAMPLES, 2, 0))


@dataclass(frozen=True)
class Dropping(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        return [batch for batch in super().epoch(number) if len(batch) == self.batch]


@dataclass(frozen=True)
class Repeating(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        first, *rest = super().epoch(number)
        return [first, *rest, first[:2]]


@dataclass(frozen=True)
class Replacing(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        random = np.random.Philox(key=[self.seed, number])
        return [np.asarray(random.random_raw(self.samples) % self.samples, np.int64)]


@dataclass(frozen=True)
class Beginning(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        return super().epoch(0)


class Unseeded(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        random = np.random.default_rng()
        return [random.permutation(self.samples)]


class Padding(ShuffleSampler):
    """The last batch is filled up with samples of the first."""

    def epoch(self, number: int) -> Any:
        *rest, last = super().epoch(number)
        return [*rest, np.concatenate([last, rest[0]])[: self.batch]]


class Replaced(ShuffleSampler):
    """One sample stands in the place of another."""

    def epoch(self, number: int) -> Any:
        first, second, *rest = super().epoch(number)
        return [first, np.concatenate([first[:1], second[1:]]), *rest]


class Ending(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        return [*super().epoch(number), np.empty(0, np.int64)]


class Fractional(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        return [batch / 1 for batch in super().epoch(number)]


class Streaming(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        return iter(super().epoch(number))


class Raising(ShuffleSampler):
    def epoch(self, number: int) -> Any:
        raise KeyError("no such epoch")


class Endless:
    def __init__(self, *given: int) -> None:
        """Nothing is kept."""


WRONG = {
    Dropping: "Dropping: epoch 0: the last batch is dropped: 53 of 437 samples are never seen",
    Repeating: "Repeating: epoch 0: sample .* is seen 2 times, in batches 0 and 7",
    Replacing: "Replacing: epoch 0: .* samples are never seen; sample .* is seen 2 times",
    Beginning: "Beginning: epoch 1 is in the order of epoch 0",
    Unseeded: "Unseeded: asked again, epoch 0 is in another order",
    Padding: "Padding: epoch 0: sample .* is seen 2 times, in batches 0 and 6",
    Replaced: "Replaced: epoch 0: 1 of 437 samples are never seen; .* in batches 0 and 1",
    Ending: "Ending: epoch 0: batch 7 is not a list of indices",
    Fractional: "Fractional: epoch 0: batch 0 is not a list of indices: .* holds float64",
    Streaming: "Streaming: epoch 0: .* is not a list of batches",
    Raising: "Raising: epoch 0: KeyError: 'no such epoch'",
    Endless: "Endless: it has no epoch",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_sampler_is_named(kind: Any) -> None:
    with pytest.raises(SamplingFault, match=WRONG[kind]):
        examine([kind(SAMPLES, 64, 3)], SAMPLES, shuffles=True)


@pytest.mark.parametrize("kept", [slice(-1), slice(1, None)])
@pytest.mark.parametrize("samples", [448, 437])
def test_a_batch_that_is_dropped_is_told(kept: slice, samples: int) -> None:
    class Short(ShuffleSampler):
        def epoch(self, number: int) -> Any:
            return super().epoch(number)[kept]

    last = samples == 437 and kept.start is None
    what = "the last batch is dropped: 53" if last else "whole batches are dropped: 64"
    with pytest.raises(SamplingFault, match=f"epoch 0: {what} of {samples} samples"):
        examine([Short(samples, 64)], samples, shuffles=True)


def test_ranks_that_drop_their_last_batches_are_told() -> None:
    class Short(DistributedSampler):
        def epoch(self, number: int) -> Any:
            return [batch for batch in super().epoch(number) if len(batch) == self.batch]

    with pytest.raises(SamplingFault, match="the last batch is dropped: 53 of 437"):
        examine([Short(SAMPLES, 32, rank, 2) for rank in range(2)], SAMPLES, shuffles=True)


class Generated:
    """It goes on drawing and keeps what it drew: asked for a later epoch first, it is another."""

    def __init__(self, samples: int, batch: int, seed: int) -> None:
        self.samples, self.random = samples, np.random.default_rng(seed)
        self.drawn: dict[int, Any] = {}

    def epoch(self, number: int) -> Any:
        return [self.drawn.setdefault(number, self.random.permutation(self.samples))]


class Begun(ShuffleSampler):
    """Its seed is that of the process."""

    def epoch(self, number: int) -> Any:
        return ShuffleSampler(self.samples, self.batch, id(self)).epoch(number)


@pytest.mark.parametrize("kind", [Generated, Begun])
def test_an_order_that_a_resume_changes_is_found(kind: Any) -> None:
    kept = []

    def made() -> list[Any]:
        kept.append(kind(SAMPLES, 64, 3))
        return kept[-1:]

    examine([kind(SAMPLES, 64, 3)], SAMPLES, shuffles=True)
    with pytest.raises(
        SamplingFault, match=r"made anew, epoch 2 .* would be shuffled differently"
    ):
        examine(made, SAMPLES, shuffles=True)
    examine(lambda: [ShuffleSampler(SAMPLES, 64, 3)], SAMPLES, shuffles=True)


def test_a_rank_that_sees_what_another_sees_is_named() -> None:
    parts = [DistributedSampler(438, 64, rank, 3) for rank in (0, 1, 1)]
    with pytest.raises(SamplingFault, match=r"146 of 438 .* 2 times, by ranks 1 and 2"):
        examine(parts, 438, shuffles=True)


def test_few_samples_may_come_in_the_same_order() -> None:
    examine([ShuffleSampler(1, 1)], 1, shuffles=True)


def test_ranks_that_see_the_same_are_named() -> None:
    same = [DistributedSampler(SAMPLES, 64, 0, 2)] * 2
    with pytest.raises(SamplingFault, match="218 of 437 samples are never seen"):
        examine(same, SAMPLES, shuffles=True)
