"""A rank's network, on any backend, as a distributed optimizer sees it: one array of parameters.

replica = Replica(Executor(client, network), "loss")
w = replica.parameters()
schedule = Decentralised(Adam()).train(rank, size, w, replica.gradient(minibatch), steps)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from d5test.case import Array
from d5test.distributed.optimizers import Gradient
from d5test.training.statistics import learned

Minibatch = Callable[[int], Mapping[str, Array]]
"""The inputs of this rank in a step, labels among them."""


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
        self.losses: list[float] = []
        """Of each minibatch, before its step."""
        self.seconds = 0.0
        """That its gradients have taken: the rank's own work, no waiting for others."""

    def parameters(self) -> Array:
        """All parameters that are learned, flat, in the network's order. They have one dtype."""
        return _flat(self.executor.fetch(self.names).values())

    def put(self, w: Array) -> None:
        """Have the network use these parameters."""
        self.executor.feed(**self.pieces(w))

    def pieces(self, w: Array) -> dict[str, Array]:
        """The parameters by name."""
        found, start = {}, 0
        for name, old in self.executor.network.fetch(self.names).items():
            end = start + prod(old.shape)
            found[name] = w[start:end].reshape(old.shape)
            start = end
        return found

    def gradient(self, minibatch: Minibatch) -> Gradient:
        """Of the loss on this rank's minibatch of a step."""

        def gradient(step: int, w: Any) -> Any:
            start = time.perf_counter()
            self.put(w)
            outputs, found = self.executor.inference_and_backprop(
                minibatch(step), self.loss, self.names
            )
            self.losses.append(float(outputs[self.loss]))
            g = _flat(found[name] for name in self.names)
            self.seconds += time.perf_counter() - start
            return g

        return gradient

    def evaluate(self, minibatch: Mapping[str, Array]) -> float:
        """The loss, nothing learned."""
        return float(self.executor.inference(minibatch)[self.loss])


def _flat(arrays: Any) -> Array:
    return np.concatenate([np.ravel(array) for array in arrays])
