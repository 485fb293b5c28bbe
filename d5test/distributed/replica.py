"""A rank's network, on any backend, as a distributed optimizer sees it: one array of parameters.

replica = Replica(Executor(client, network), "loss")
w = replica.parameters()
schedule = Decentralised(Adam()).train(rank, size, w, replica.gradient(minibatch), steps)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from d5test.case import Array
from d5test.distributed.optimizers import Gradient

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
        self.losses: list[float] = []
        """Of each minibatch so far, before its step."""

    def parameters(self) -> Array:
        """All parameters, flat, in the network's order. They have one dtype."""
        return _flat(self.executor.fetch().values())

    def put(self, w: Array) -> None:
        """Have the network use these parameters."""
        pieces, start = {}, 0
        for name, old in self.executor.network.fetch().items():
            end = start + prod(old.shape)
            pieces[name] = w[start:end].reshape(old.shape)
            start = end
        self.executor.feed(**pieces)

    def gradient(self, minibatch: Minibatch) -> Gradient:
        """Of the loss on this rank's minibatch of a step."""

        def gradient(step: int, w: Any) -> Any:
            self.put(w)
            outputs, found = self.executor.inference_and_backprop(minibatch(step), self.loss)
            self.losses.append(float(outputs[self.loss]))
            return _flat(found.values())

        return gradient


def _flat(arrays: Any) -> Array:
    return np.concatenate([np.ravel(array) for array in arrays])
