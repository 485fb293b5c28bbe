"""Samplers see every sample once an epoch; those that do not are found and named."""

from __future__ import annotations

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


WRONG = {
    Dropping: "the last batch is dropped: 53 of 437 samples are never seen",
    Repeating: "is seen 2 times",
    Replacing: "samples are never seen",
    Beginning: "epoch 1 is in the order of epoch 0",
    Unseeded: "asked again, epoch 0 is in another order",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_sampler_is_named(kind: Any) -> None:
    with pytest.raises(SamplingFault, match=WRONG[kind]):
        examine([kind(SAMPLES, 64, 3)], SAMPLES, shuffles=True)


def test_ranks_that_see_the_same_are_named() -> None:
    same = [DistributedSampler(SAMPLES, 64, 0, 2)] * 2
    with pytest.raises(SamplingFault, match="218 of 437 samples are never seen"):
        examine(same, SAMPLES, shuffles=True)
