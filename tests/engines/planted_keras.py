"""Engines of Keras that are wrong on purpose, each in one thing, and an honest variant."""

from typing import Any

import jax
from torch import nn

from d5test.engines.engine import Plan, Rule
from d5test.engines.keras_parallel import DataParallel, ModelParallel, keras


class MeanOverTooFew(DataParallel):
    def weights(self, weight: Any) -> Any:
        return weight * (self.world.size / (self.world.size - 1))


class MeanOfOwn(DataParallel):
    """Keras takes the mean over all samples by itself; here each rank's weights are its own."""

    def weights(self, weight: Any) -> Any:
        return weight * self.world.size


class LastRankLost(DataParallel):
    """The samples of the last rank weigh nothing."""

    def weights(self, weight: Any) -> Any:
        return weight * (self.world.rank < self.world.size - 1)


class NothingDistributed(DataParallel):
    """No distribution is in force: each rank trains alone, on its own device."""

    def distribution(self) -> Any:
        return None


class KeysOfNoPath(ModelParallel):
    """A key of a `LayoutMap` matches a whole path: these match none, and nothing is divided."""

    def key(self, name: str) -> str:
        return name


class StateEverywhere(ModelParallel):
    """The variables are divided. The optimizer's state is not."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        everywhere = jax.sharding.NamedSharding(
            self.mesh.backend_mesh, jax.sharding.PartitionSpec()
        )
        for slot in self.optimizer.slots:
            slot._layout = everywhere
            slot._value = jax.device_put(slot.value, everywhere)


class MeanByKeras(DataParallel):
    """Honest: Keras takes the mean over all samples."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        self.network.compile(
            self.optimizer.made, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        )

    def weights(self, weight: Any) -> Any:
        return None
