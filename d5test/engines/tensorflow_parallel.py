"""TensorFlow's `MultiWorkerMirroredStrategy`, of which each rank is a worker.

Requirements: the workers find each other once a process, before TensorFlow computes anything, and
its own ring carries their collectives. A Keras optimizer sums the gradients over the replicas, as
it does in a training loop of one's own. Arrays are as TensorFlow holds them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, nan, prod, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from d5test.backends.base import Unsupported
from d5test.case import Array
from d5test.engines import keras_backend
from d5test.engines.engine import TINY, Engine, Held, Minibatch, Plan, Rule, World
from d5test.engines.functional import (
    EPSILON,
    Parameters,
    Rows,
    Update,
    as_tensors,
    rows_of,
    weighted_loss,
)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
keras_backend.prefer("tensorflow")

import tensorflow as tf  # noqa: E402 (it imports Keras)

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


@dataclass(frozen=True)
class Optimizer:
    """One of Keras, which does what one of PyTorch does.

    Its velocity holds the learning rate, which is constant here: that is the same motion. AdamW
    adds epsilon to the root of the uncorrected moment, so that epsilon is corrected in each step.

    slot  the attribute that has one slot of all parameters
    """

    made: Any
    slot: str
    epsilon: Any = None

    @classmethod
    def of(cls, rule: Rule, dtype: str) -> Optimizer:
        """In the scope of the strategy. Hyperparameters are kept in the parameters' dtype."""
        keras = keras_backend.demand("tensorflow")
        keras.config.set_floatx(dtype)
        o, kind = rule.options, rule.kind.__name__
        if kind == "SGD":
            return cls(keras.optimizers.SGD(o["lr"], momentum=o["momentum"]), "momentums")
        beta_1, beta_2 = o["betas"]
        made = keras.optimizers.AdamW(
            o["lr"], weight_decay=o["weight_decay"], beta_1=beta_1, beta_2=beta_2
        )
        made.epsilon = tf.Variable(o["eps"], trainable=False, dtype=dtype)
        return cls(made, "_momentums", made.epsilon)

    def prepare(self, update: Update, step: int) -> None:
        """Say which step comes next."""
        if self.epsilon is not None:
            _, correction = update.corrections(step)
            self.epsilon.assign(update.options["eps"] * sqrt(correction))

    @property
    def slots(self) -> Arrays:
        """One of each parameter."""
        return [slot.value for slot in getattr(self.made, self.slot)]


@cache
def connected(rank: int, size: int) -> Any:
    """The strategy, made once a process by all ranks together. Raises `Unsupported`."""
    distribute = tf.distribute
    cluster = distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": addresses(size)}),
        task_type="worker",
        task_id=rank,
        num_accelerators={"CPU": 1},
        rpc_layer="grpc",
    )
    options = distribute.experimental.CommunicationOptions(
        implementation=distribute.experimental.CommunicationImplementation.RING
    )
    try:
        strategy = distribute.MultiWorkerMirroredStrategy(cluster, options)
    except RuntimeError as error:  # something in this process has computed already
        raise Unsupported(f"the workers of TensorFlow do not begin: {error}") from None
    if strategy.num_replicas_in_sync != size:
        raise Unsupported(f"{strategy.num_replicas_in_sync} replicas on {size} ranks")
    return strategy


def addresses(size: int) -> list[str]:
    """Where each rank may listen, told by way of PyTorch's process group.

    All on one machine use its loopback, which a firewall or a name of a host does not concern.
    """
    host = socket.gethostname()
    with socket.socket() as free:
        free.bind(("", 0))
        own = host, free.getsockname()[1]
        every: list[Any] = [None] * size
        dist.all_gather_object(every, own)  # while all ports are taken: no two are the same
    alone = len({name for name, _ in every}) == 1
    return [f"{'127.0.0.1' if alone else name}:{port}" for name, port in every]


class MultiWorker(Engine):
    """A replica a rank; variables are mirrored, and the optimizer sums the gradients."""

    name = "tf-multiworker"
    version = f"tensorflow {tf.__version__}"
    seen = False
    lacks = MappingProxyType({"residual": "no convolution is written as a function yet"})

    def start(self, world: World) -> None:
        """See `Engine`."""
        keras = keras_backend.demand("tensorflow")
        self.before = keras.config.floatx()
        self.world, self.strategy = world, connected(world.rank, world.size)

    def close(self) -> None:
        """See `Engine`."""
        if hasattr(self, "before"):
            keras_backend.imported().config.set_floatx(self.before)

    def wrap(self, model: nn.Sequential, optimizer: Rule, plan: Plan) -> None:
        """Variables are the first rank's, at every rank: the strategy sends them."""
        self.plan, self.update, self.taken = plan, Update.of(optimizer), 0
        self.initial = Parameters.of(model)
        self.dtype = next(iter(self.initial.values.values())).dtype.name
        with self.strategy.scope():
            self.p = {name: tf.Variable(value) for name, value in self.initial.values.items()}
            self.optimizer = Optimizer.of(optimizer, self.dtype)
            self.optimizer.made.build([*self.p.values()])
        self.stepped = tf.function(self.computed)

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
        self.taken += 1
        self.optimizer.prepare(self.update, self.taken)
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
        state = dict(zip(self.p, self.optimizer.slots, strict=True))
        return Held(
            *({name: sum(prod(v.shape) for v in self.local(each)) for name, each in of.items()}
              for of in (self.p, state))
        )  # fmt: skip
