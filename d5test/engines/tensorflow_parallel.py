"""TensorFlow's `MultiWorkerMirroredStrategy`, of which each rank is a worker.

Requirements: the workers find each other once a process, before TensorFlow computes anything, and
its own ring carries their collectives. A Keras optimizer sums the gradients over the replicas, as
it does in a training loop of one's own. Arrays are as TensorFlow holds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from math import inf, nan, prod, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn

from d5test.backends.base import Unsupported
from d5test.case import Array
from d5test.distributed.gloo import COLLECTIVE
from d5test.distributed.meeting import addresses
from d5test.engines import keras_backend
from d5test.engines.engine import TINY, Engine, Held, Minibatch, Plan, Rule, World, gathered
from d5test.engines.functional import (
    EPSILON,
    Parameters,
    Rows,
    as_tensors,
    rows_of,
    weighted_loss,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
keras_backend.prefer("tensorflow")

import tensorflow as tf  # noqa: E402 (it imports Keras)

ENDED: list[str] = []
"""Errors after which this process can have no collective of TensorFlow any more."""
Arrays = Sequence[Any]


class TensorFlowFunctions:
    """See `d5test.engines.functional.Functions`."""

    softmax, log_softmax = staticmethod(tf.nn.softmax), staticmethod(tf.nn.log_softmax)
    einsum, reshape = staticmethod(tf.einsum), staticmethod(tf.reshape)
    rows, total = staticmethod(tf.gather), staticmethod(tf.reduce_sum)

    @staticmethod
    def linear(x: Any, w: Any) -> Any:
        """See `Functions`."""
        return tf.matmul(x, w, transpose_b=True)

    @staticmethod
    def convolved(x: Any, w: Any, stride: int) -> Any:
        """With channels last, which alone TensorFlow has on CPUs."""
        pad = w.shape[-1] // 2
        images = tf.pad(tf.transpose(x, (0, 2, 3, 1)), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        y = tf.nn.conv2d(images, tf.transpose(w, (2, 3, 1, 0)), stride, "VALID")
        return tf.transpose(y, (0, 3, 1, 2))

    @staticmethod
    def means(x: Any) -> Any:
        """See `Functions`."""
        return tf.reduce_mean(x, (-2, -1))

    @staticmethod
    def gelu(x: Any) -> Any:
        """Written out: `tf.nn.gelu` of 2.21 has sqrt(1/2) in float32, 4e-9 off in float64."""
        return 0.5 * x * tf.math.erfc(x * -sqrt(0.5))

    @staticmethod
    def without_least(x: Any) -> Any:
        """See `Functions`."""
        least = tf.reduce_min(x, -1, keepdims=True)
        return tf.where(x == least, tf.constant(-inf, x.dtype), x)

    @staticmethod
    def normalised(x: Any) -> Any:
        """See `Functions`."""
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return (x - mean) / tf.sqrt(variance + EPSILON)

    @staticmethod
    def picked(x: Any, indices: Any) -> Any:
        """See `Functions`."""
        return tf.gather(x, indices, batch_dims=indices.shape.rank)

    @staticmethod
    def constant(value: Array, like: Any) -> Any:
        """See `Functions`."""
        return tf.constant(value, like.dtype)


@cache
def connected(rank: int, size: int) -> Any:
    """The strategy, made once a process by all ranks together. Raises `Unsupported`."""
    distribute = tf.distribute
    cluster = distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": addresses(partial(gathered, size=size))}),
        task_type="worker",
        task_id=rank,
        num_accelerators={"CPU": 1},
        rpc_layer="grpc",
    )
    options = distribute.experimental.CommunicationOptions(
        implementation=distribute.experimental.CommunicationImplementation.RING,
        timeout_seconds=COLLECTIVE.total_seconds(),
    )
    try:
        strategy = distribute.MultiWorkerMirroredStrategy(cluster, options)
    except RuntimeError as error:  # something in this process has computed already
        raise Unsupported(f"the workers of TensorFlow do not begin: {error}") from None
    if strategy.num_replicas_in_sync != size:
        raise Unsupported(f"{strategy.num_replicas_in_sync} replicas on {size} ranks")
    return strategy


@contextmanager
def collectives() -> Iterator[None]:
    """Within: TensorFlow is at work, and what it raises ends its collectives for good."""
    try:
        yield
    except tf.errors.OpError as error:
        ENDED.append(type(error).__name__)
        raise


class MultiWorker(Engine):
    """A replica a rank; variables are mirrored, and the optimizer sums the gradients."""

    name = "tf-multiworker"
    version = f"tensorflow {tf.__version__}"
    seen = False
    lacks = MappingProxyType(
        {
            "batchnorm": "no batch normalisation is written as a function yet",
            "dropout": "no dropout is written as a function yet",
            "branched": "what no sample uses has a gradient of zero, and is stepped",
            "decay": keras_backend.DECAY,
            "resumed": "no checkpoint of TensorFlow is written yet",
        }
    )

    def start(self, world: World) -> None:
        """See `Engine`."""
        keras = keras_backend.demand("tensorflow")
        ended = [*filter(None, gathered(ENDED[:1], world.size))]
        if ended:
            raise Unsupported(f"its collectives ended with an earlier fault: {ended[0][0]}")
        self.before = keras.config.floatx()
        self.world = world
        with collectives():
            self.strategy = connected(world.rank, world.size)

    def close(self) -> None:
        """See `Engine`."""
        if hasattr(self, "before"):
            keras_backend.imported().config.set_floatx(self.before)

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """Variables are the first rank's, at every rank: the strategy sends them."""
        self.plan = plan
        self.initial = Parameters.of(model)
        self.dtype = next(iter(self.initial.values.values())).dtype.name
        with collectives(), self.strategy.scope():
            self.p = {name: tf.Variable(value) for name, value in self.initial.values.items()}
            self.optimizer = keras_backend.Optimizer(optimizer, self.dtype)
            self.optimizer.made.build([*self.p.values()])
        self.stepped = tf.function(self.computed, autograph=False)

    def loss(self, part: Rows) -> Any:
        """Of some samples, each by its weight."""
        named = self.initial.under_all_names(self.p)
        return weighted_loss(TensorFlowFunctions(), named, part.x, part.y, part.weight)

    def gradient(self, part: Arrays) -> tuple[Any, Arrays]:
        """The loss of a part of this rank's samples, and its gradient."""
        with tf.GradientTape() as tape:
            loss = self.loss(Rows(*part))
        gradient: Arrays = tape.gradient(loss, [*self.p.values()])
        return loss, gradient

    def own(self, parts: Sequence[Arrays]) -> tuple[Any, Any]:
        """A step on a replica: its loss, and the norm of the gradient of all, if one is wanted."""
        losses, gradients = zip(*(self.gradient(part) for part in parts), strict=True)
        g: Arrays = [*map(self.added, zip(*gradients, strict=True))]
        norm = tf.constant(nan, self.dtype)
        if self.plan.clip < inf:
            norm, g = self.clipped(g)
        self.optimizer.made.apply_gradients(zip(g, self.p.values(), strict=True))
        return tf.add_n(losses), norm

    def added(self, gradients: Arrays) -> Any:
        """Those of the parts, as a dense tensor also where rows were gathered.

        Adam of Keras 3.15 squares the slices of such a gradient one by one: where a row is there
        twice, the second moment is too small.
        """
        return tf.add_n(gradients)

    def clipped(self, g: Arrays) -> tuple[Any, Arrays]:
        """The norm of the sum over the replicas, and this one's summand of what is clipped.

        `global_clipnorm` of Keras clips what each replica has before it is summed.
        """
        norm = tf.linalg.global_norm(self.summed(g))
        factor = tf.minimum(self.plan.clip / (norm + TINY), 1.0)
        return norm, [factor * each for each in g]

    def summed(self, g: Arrays) -> Arrays:
        """Over the replicas."""
        total: Arrays = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, g
        )
        return total

    def computed(self, parts: Sequence[Arrays]) -> tuple[Any, Any]:
        """The step of all: the loss of the joined minibatch, and the norm."""
        loss, norm = self.strategy.run(self.own, args=(parts,))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None), norm

    def parts(self, joined: Minibatch) -> list[Arrays]:
        """This rank's share. All have as many samples, so that all have the same graph."""
        size, rank = self.world.size, self.world.rank
        return [
            tuple(map(tf.constant, (own.x, own.y, own.weight)))
            for rows in rows_of(joined, size, self.plan.accumulate, self.dtype)
            for own in [rows.share(rank, size)]
        ]

    def step(self, joined: Minibatch) -> float:
        """See `Engine`."""
        with collectives():
            self.optimizer.prepare()
            loss, norm = self.stepped(self.parts(joined))
        self.norm = float(norm)
        return float(loss)

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """What this rank's replica has."""
        return as_tensors({name: np.asarray(self.local(v)[0]) for name, v in self.p.items()})

    def local(self, variable: Any) -> Arrays:
        """The replicas of a variable on this rank."""
        replicas: Arrays = self.strategy.experimental_local_results(variable)
        return replicas

    def placements(self) -> Held:
        """Of the replicas of this rank."""
        slots = (slot.value for slot in self.optimizer.slots)
        state = dict(zip(self.p, slots, strict=True))
        return Held(
            *({name: sum(prod(v.shape) for v in self.local(each)) for name, each in of.items()}
              for of in (self.p, state))
        )  # fmt: skip
