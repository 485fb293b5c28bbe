"""Engines of jax that are wrong on purpose, each in one thing, and honest variants of ours."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from d5test.case import Array
from d5test.engines.engine import Minibatch
from d5test.engines.jax_parallel import Arrays, Sharding, ShardMap, ShardMapUnchecked
from tests.engines.failing import failing


class PmeanOnTop(ShardMap):
    """Code from before jax summed by itself: the mean of what is a sum already."""

    def summed(self, gradient: Any) -> Any:
        return jax.lax.pmean(jax.tree.map(lambda g: g * self.world.size, gradient), "dp")


class MeanOverTooFew(ShardMapUnchecked):
    def summed(self, gradient: Any) -> Any:
        size = self.world.size
        total = super().summed(gradient)
        return jax.tree.map(lambda g: g * (size / (size - 1)), total)


class NothingSummed(ShardMapUnchecked):
    """Each rank steps with its own gradient, and says that all have the same."""

    def summed(self, gradient: Any) -> Any:
        return gradient


class NothingSharded(Sharding):
    """No name of the plan is met: each rank holds everything, and all is right."""

    def specs(self) -> Mapping[str, PartitionSpec]:
        return {name: PartitionSpec() for name in self.initial.values}


class StateEverywhere(Sharding):
    """The parameters are sharded. The optimizer's state is not."""

    def slots_of(self, name: str) -> dict[str, Any]:
        zeros = np.zeros_like(self.initial.values[name])
        ways = self.p[name].shape[0]
        padded = np.pad(zeros, [(0, ways - len(zeros))] + [(0, 0)] * (zeros.ndim - 1))
        sharding = self.sharding(PartitionSpec())
        return {slot: self.array(padded, sharding) for slot in self.update.slots}


class OtherSeed(Sharding):
    """The last rank starts from other parameters."""

    def array(self, value: Array, sharding: NamedSharding) -> Any:
        if sharding.is_fully_replicated and self.world.rank == self.world.size - 1:
            value = value + value.dtype.type(0.125)
        return super().array(value, sharding)


class LastUnevenShardLost(Sharding):
    """What cannot be divided equally among the ranks is left out."""

    def step(self, joined: Minibatch) -> float:
        kept = len(joined) - len(joined) % self.shares
        return super().step(replace(joined, x=joined.x[:kept], y=joined.y[:kept]))


class PaddingCounted(ShardMap):
    """The samples that fill up a share count like any other."""

    def loss(self, p: Arrays, part: Any) -> Any:
        return super().loss(p, replace(part, weight=part.weight.max()[None]))


Raising = failing("Raises", ShardMap)
"""Rank 1 raises in the second step, and the others wait in jax."""


class OptimizationBarrier(Sharding):
    """Honest: XLA may fuse nothing of the gradient with the update."""

    def gradient(self, p: Arrays, part: Any) -> tuple[Any, Any]:
        loss, gradient = jax.lax.optimization_barrier(super().gradient(p, part))
        return loss, gradient
