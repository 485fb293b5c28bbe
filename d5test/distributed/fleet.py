"""A network trained on all ranks of a communicator: each has a replica, and its own minibatches.

    fleet = Fleet(comm, client, network, dataset.train, Decentralised(Momentum(lr=0.1)), size=4)
    fitted = fleet.train(shares(len(dataset.train), 64, 4, epochs=5, seed=1))
    fleet.accuracy(fitted.parameters, dataset)

`comm` is any that runs schedules, `client` the backend of the replicas in this process. A replica
is a rank's network as a distributed optimizer sees it, one array of parameters:

    replica = Replica(Executor(client, network), "loss")
    w = replica.parameters()
    schedule = Decentralised(Adam()).train(rank, size, w, replica.gradient(minibatch), steps)
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np

from d5test.case import Array
from d5test.distributed.communicator import Runner, Traffic
from d5test.distributed.optimizer import DistributedOptimizer, Gradient
from d5test.networks.executor import Executor
from d5test.networks.network import Network
from d5test.reference.collectives import Schedule
from d5test.training.datasets import Dataset, Split
from d5test.training.samplers import DistributedSampler, Indices, examine
from d5test.training.session import Session, learned
from d5test.training.trainer import accuracy

Shares = Sequence[Sequence[Indices]]
"""The samples of each worker, step by step."""
Found = TypeVar("Found")


class Replica:
    """A network that is trained on one rank.

    executor  of `d5test.networks.executor`; its parameters are overwritten
    loss      the name of the output that is minimised: a mean over the samples
    """

    def __init__(self, executor: Any, loss: str) -> None:
        self.executor = executor
        self.loss = loss
        self.names = learned(executor.network.graph)
        self.begin()

    def begin(self) -> None:
        """Forget what was measured so far."""
        self.losses: dict[int, float] = {}
        """Of each step's minibatch, before the step."""
        self.gradients = 0
        """That were taken."""
        self.seconds = 0.0
        """That its gradients have taken: the rank's own work, no waiting for others."""

    def parameters(self) -> Array:
        """All parameters that are learned, flat, in the network's order. They have one dtype."""
        return np.concatenate([np.ravel(w) for w in self.executor.fetch(self.names).values()])

    def put(self, w: Array) -> None:
        """Have the network use these parameters."""
        self.executor.feed(**self.pieces(w))

    def pieces(self, w: Array) -> dict[str, Array]:
        """The parameters by name."""
        shapes = [self.executor.network.graph.parameters[name].shape for name in self.names]
        ends = np.cumsum([prod(shape) for shape in shapes])
        pieces = zip(self.names, np.split(w, ends[:-1]), shapes, strict=True)
        return {name: piece.reshape(shape) for name, piece, shape in pieces}

    def gradient(self, minibatch: Callable[[int], Mapping[str, Array]]) -> Gradient:
        """Of the loss on this rank's minibatch of a step: its inputs, labels among them."""

        def gradient(step: int, w: Any) -> Any:
            start = time.perf_counter()
            self.put(w)
            outputs, gradients = self.executor.inference_and_backprop(
                minibatch(step), self.loss, self.names
            )
            self.losses[step] = float(outputs[self.loss])
            self.gradients += 1
            g = np.concatenate([np.ravel(gradients[name]) for name in self.names])
            self.seconds += time.perf_counter() - start
            return g

        return gradient

    def evaluate(self, minibatch: Mapping[str, Array]) -> float:
        """The loss, nothing learned."""
        return float(self.executor.inference(minibatch)[self.loss])


@dataclass(frozen=True)
class Fitted:
    """What came of a training on `p` ranks, known to all of them.

    parameters  those that it has led to, flat
    replicas    of each rank
    losses      (steps, workers): of each worker's minibatch before its step; masked where it
                took no part
    traffic     of each rank, if the communicator counts
    compute     (p,): seconds that each rank's own gradients took
    seconds     from start to end, on the slowest rank
    """

    parameters: Array
    replicas: tuple[Array, ...]
    losses: Array
    traffic: Sequence[Traffic] | None
    compute: Array
    seconds: float


class Fleet:
    """Replicas of a network on `size` ranks, and the optimizer that trains them."""

    def __init__(
        self,
        comm: Runner,
        client: Any,
        network: Network,
        split: Split,
        optimizer: DistributedOptimizer,
        size: int,
    ) -> None:
        self.comm, self.split, self.optimizer, self.size = comm, split, optimizer, size
        self.workers = optimizer.workers(size)
        self.replicas = {
            rank: Replica(Executor(client, network), "loss") for rank in here(comm, size)
        }
        self.start = next(iter(self.replicas.values())).parameters()

    def train(self, shares: Shares, order: int = 0) -> Fitted:
        """From the network's initial parameters, on each worker's samples."""
        for replica in self.replicas.values():
            replica.begin()
        steps, start = len(shares[0]), time.perf_counter()

        def program(rank: int, size: int, w: Array) -> Schedule:
            replica = self.replicas[rank]
            gradient = replica.gradient(lambda step: self._batch(shares, rank, step))
            return self.optimizer.train(rank, size, w, gradient, steps)

        room = np.zeros(self.optimizer.room(self.size), self.start.dtype)
        arrays = [np.concatenate([self.start, room])] * self.size
        exposed = self.optimizer.exposed
        reduced = self.comm.run(program, arrays, order, exposed=exposed)
        spent = time.perf_counter() - start
        measured = {rank: (r.losses, r.seconds, spent) for rank, r in self.replicas.items()}
        losses, compute, seconds = zip(*self.comm.everywhere(measured), strict=True)
        replicas = tuple(w[: len(self.start)] for w in reduced.results)
        return Fitted(
            np.asarray(self.optimizer.trained(replicas), self.start.dtype),
            replicas,
            np.ma.masked_array(
                [[losses[k].get(t, 0.0) for k in self.workers] for t in range(steps)],
                [[t not in losses[k] for k in self.workers] for t in range(steps)],
            ),
            reduced.traffic,
            np.array(compute),
            max(seconds),
        )

    def loss(self, w: Array, shares: Shares) -> float:
        """The mean loss of parameters over the workers' minibatches, each a worker's own."""
        losses: dict[int, list[float]] = {rank: [] for rank in self.replicas}
        for rank in losses.keys() & {*self.workers}:
            replica = self.replicas[rank]
            replica.put(w)
            losses[rank] = [
                replica.evaluate(self._batch(shares, rank, step)) for step in range(len(shares[0]))
            ]
        return float(np.mean([loss for own in self.comm.everywhere(losses) for loss in own]))

    def accuracy(self, w: Array, dataset: Dataset) -> float:
        """The share of the test split that parameters classify right, as rank 0 finds it."""

        def tested(replica: Replica) -> float:
            network = replica.executor.network.copy()
            for name, piece in replica.pieces(w).items():
                network.feed(name, piece)
            client, base = replica.executor.client, self.optimizer.base
            with closing(Session(client, network, base, "reference")) as session:
                return accuracy(session, dataset)

        return at_root(self.comm, self.size, lambda: tested(self.replicas[0]))

    def close(self) -> None:
        """Give the memory back where the networks run."""
        for replica in self.replicas.values():
            replica.executor.unload()

    def _batch(self, shares: Shares, rank: int, step: int) -> dict[str, Array]:
        return self.split.batch(shares[self.workers.index(rank)][step])


def shares(samples: int, batch: int, workers: int, epochs: int, seed: int) -> Shares:
    """What each worker sees: about `batch` samples together in each step.

    All take as many steps: where workers do not divide the samples, the last minibatch of an
    epoch, of one sample, may be one that some lack. It is left out.
    """
    each = max(1, round(batch / workers))
    samplers = [DistributedSampler(samples, each, i, workers, seed) for i in range(workers)]
    examine(samplers, samples, shuffles=True)
    seen: list[list[Indices]] = [[] for _ in samplers]
    for epoch in range(epochs):
        orders = [sampler.epoch(epoch) for sampler in samplers]
        steps = min(map(len, orders))
        for mine, order in zip(seen, orders, strict=True):
            mine += order[:steps]
    return seen


def here(comm: Runner, size: int) -> list[int]:
    """The ranks in this process."""
    ranks: list[int] = []

    def program(rank: int, size: int, x: Array) -> Schedule:
        ranks.append(rank)
        yield from ()

    comm.run(program, [np.zeros(1)] * size, 0)
    return ranks


def spread(comm: Runner, size: int, work: Callable[[int], Found]) -> list[Found]:
    """What `work(rank)` is, rank by rank, each done by its own process and sent to all."""
    return comm.everywhere({rank: work(rank) for rank in here(comm, size)})


def at_root(comm: Runner, size: int, work: Callable[[], Found]) -> Found:
    """What `work` is at rank 0, sent to all."""
    (result, *_) = spread(comm, size, lambda rank: work() if rank == 0 else None)
    return result  # type: ignore[return-value]
