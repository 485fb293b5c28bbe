"""Engines of TensorFlow that are wrong on purpose, each in one thing, and honest variants."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
from torch import nn

from d5test.engines.engine import Minibatch, Plan, Rule, World
from d5test.engines.tensorflow_parallel import Arrays, MultiWorker
from tests.engines.failing import failing


class MeanOverTooFew(MultiWorker):
    def gradient(self, part: Arrays) -> tuple[Any, Arrays]:
        size = self.world.size
        loss, gradient = super().gradient(part)
        return loss, [g * (size / (size - 1)) for g in gradient]


class MeanOfOwn(MultiWorker):
    """The loss is the mean over the replica's own samples, as in a script for one process."""

    def gradient(self, part: Arrays) -> tuple[Any, Arrays]:
        loss, gradient = super().gradient(part)
        return loss, [g * self.world.size for g in gradient]


class ClippedByOwnNorm(MultiWorker):
    """Each replica clips what it has, as Keras' `global_clipnorm` does, before the sum."""

    def clipped(self, g: Arrays) -> tuple[Any, Arrays]:
        size = self.world.size
        norm, _ = super().clipped(g)
        own, _ = tf.clip_by_global_norm([each * size for each in g], self.plan.clip)
        return norm, [each / size for each in own]


class ClippedByKeras(MultiWorker):
    """The optimizer has a `global_clipnorm`."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        self.optimizer.made.global_clipnorm = plan.clip

    def clipped(self, g: Arrays) -> tuple[Any, Arrays]:
        norm, _ = super().clipped(g)
        return norm, g


class OneNotSummed(MultiWorker):
    """The gradient of a layer is each replica's own."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        optimizer_ = self.optimizer.made
        summing, at = optimizer_._all_reduce_sum_gradients, list(self.p).index("second.down.bias")

        def summed(pairs: Sequence[Any]) -> list[Any]:
            every = list(summing(pairs))
            g, variable = pairs[at]
            every[at] = g * self.world.size, variable
            return every

        optimizer_._all_reduce_sum_gradients = summed


class NothingSummed(MultiWorker):
    """No strategy is in force: each rank trains alone."""

    def start(self, world: World) -> None:
        super().start(world)
        self.strategy = tf.distribute.get_strategy()


class LastUnevenShareLost(MultiWorker):
    """What cannot be divided equally among the ranks is left out."""

    def step(self, joined: Minibatch) -> float:
        kept = len(joined) - len(joined) % self.world.size
        return super().step(replace(joined, x=joined.x[:kept], y=joined.y[:kept]))


class PaddingCounted(MultiWorker):
    """The samples that fill up a share count like any other."""

    def gradient(self, part: Arrays) -> tuple[Any, Arrays]:
        x, y, weight = part
        return super().gradient((x, y, tf.fill(weight.shape, tf.reduce_max(weight))))


class EpsilonAsItStands(MultiWorker):
    """Keras' epsilon is taken for PyTorch's."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        self.optimizer.made.epsilon = optimizer.options["eps"]


class RowsOneByOne(MultiWorker):
    """Adam of Keras has the gradient of an embedding as slices, a row for each word."""

    def added(self, gradients: Arrays) -> Any:
        return gradients[0]


class StateForgotten(MultiWorker):
    """The optimizer starts again in each step."""

    def step(self, joined: Minibatch) -> float:
        for slot in self.optimizer.slots:
            slot.assign(tf.zeros_like(slot.value))
        return super().step(joined)


Raising = failing("Raises", MultiWorker)
"""Rank 1 raises in the second step, and the others wait in TensorFlow."""


class OtherSeed(MultiWorker):
    """Honest: the last rank has other parameters, but the strategy sends the first one's."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        if self.world.rank:
            for p in model.parameters():
                p.data += 1
        super().wrap(model, optimizer, plan)


class SummedOnce(MultiWorker):
    """Honest: the sum that was clipped is stepped with, and the optimizer sums nothing."""

    def clipped(self, g: Arrays) -> tuple[Any, Arrays]:
        total = self.summed(g)
        norm, _ = super().clipped(g)
        factor = tf.minimum(self.plan.clip / (norm + 1e-6), 1.0)
        self.optimizer.made._all_reduce_sum_gradients = lambda pairs: pairs
        return norm, [factor * each for each in total]


class Eager(MultiWorker):
    """Honest: no graph is made."""

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        super().wrap(model, optimizer, plan)
        self.stepped = self.computed
