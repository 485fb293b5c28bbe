"""The operator Descent: several ranks fit a linear model by least squares, on their minibatches.

Its inputs are the parameters at the start, then each rank's samples and targets; its outputs are
each rank's parameters after some steps. Bars that run through it know the arithmetic of a
distributed optimizer, so that its result can be told from that of a wrong one; what is right does
not come from there, but from one process that has all minibatches: `sequential`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from d5test.case import Operator
from d5test.distributed.onesided import OneSided
from d5test.distributed.optimizers import (
    Centralised,
    Decentralised,
    DistributedOptimizer,
    Gradient,
    Local,
    ModelAveraging,
    NeighbourAveraging,
)
from d5test.distributed.servers import StaleSynchronous
from d5test.distributed.virtual import run, shuffled
from d5test.reference.optimizers import Optimizer
from d5test.reference.steps import STEPS

Distributed = Callable[[Optimizer], DistributedOptimizer]
"""A distributed optimizer, over any base optimizer."""

CONSISTENT: Mapping[str, Distributed] = MappingProxyType(
    {
        "centralised": Centralised,
        "decentralised": Decentralised,
        "decentralised-halving_doubling": partial(Decentralised, algorithm="halving_doubling"),
    }
)
"""Those that take the steps of the base optimizer on the joined minibatch, with equal replicas."""

AVERAGING: Mapping[str, Distributed] = MappingProxyType(
    {"neighbour_averaging": NeighbourAveraging, "model_averaging": ModelAveraging}
)
"""Those whose replicas differ, and are averaged."""

SERVERS: Mapping[str, Distributed] = MappingProxyType(
    {
        "stale_synchronous-0": partial(StaleSynchronous, bound=0),
        "stale_synchronous-2": partial(StaleSynchronous, bound=2),
        "asynchronous": StaleSynchronous,
    }
)
"""Those with a server and stale reads."""

ONE_SIDED: Mapping[str, Distributed] = MappingProxyType(
    {"one_sided": OneSided, "one_sided-2": partial(OneSided, bound=2)}
)
"""Those with parameters that workers reach by themselves, and stale reads."""

DISTRIBUTED: Mapping[str, Distributed] = MappingProxyType(
    {**CONSISTENT, **AVERAGING, **SERVERS, **ONE_SIDED}
)
"""By name."""

EXACT: Mapping[str, float] = MappingProxyType(
    {
        "lr": 0.125, "momentum": 0.875, "rho": 0.875, "beta1": 0.875, "beta2": 0.9375,
        "epsilon": 2.0**-10, "accumulator": 0.125,
    }
)  # fmt: skip
"""Hyperparameters that are exact in every dtype."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Descent(Operator):
    """`steps` steps of a distributed optimizer. Inputs: w, then X and y of each rank.

    w has shape (n,), X (steps, b, n), y (steps, b): of each step a minibatch of b samples. The
    loss is half the mean square of X w - y over the samples of a minibatch.

    optimizer  a name in `DISTRIBUTED`
    base       a name in `d5test.reference.optimizers.OPTIMIZERS`
    order      which order of delivery virtual ranks have
    """

    domain = "d5test"
    optimizer: str
    base: str
    steps: int = 3
    order: int = 0

    def forward(self, w: Any, *minibatches: Any) -> Any:
        """The parameters of each rank."""
        size = len(minibatches) // 2
        optimizer = DISTRIBUTED[self.optimizer](self.base_optimizer(w))
        arrays = tuple(np.empty_like(w) for _ in range(size))
        for array in arrays:
            array[...] = w
        schedules = [
            optimizer.train(rank, size, array, self.gradient(rank, minibatches), self.steps)
            for rank, array in enumerate(arrays)
        ]
        run(schedules, shuffled(self.order))
        return arrays

    def base_optimizer(self, w: Any) -> Optimizer:
        """The base optimizer, its numbers as arrays like `w`."""
        step = STEPS[self.base]()
        exact = {name: value for name, value in EXACT.items() if name in step.attributes}
        return step.with_(**exact).optimizer(like=w)

    def gradient(self, rank: int, minibatches: tuple[Any, ...]) -> Gradient:
        """Of the loss of a rank's own minibatches."""
        return partial(_gradient, *minibatches[2 * rank : 2 * rank + 2])

    def sequential(self, w: Any, *minibatches: Any) -> list[Any]:
        """The parameters of each rank, by one process that has all minibatches."""
        size = len(minibatches) // 2
        if self.optimizer in CONSISTENT:
            return [self._joined(w, *minibatches)] * size
        gradients = [self.gradient(rank, minibatches) for rank in range(size)]
        replicas = [(w.copy(), Local(self.base_optimizer(w))) for _ in range(size)]
        for step in range(self.steps):
            before = [w.copy() for w, _ in replicas]
            for rank, (w, local) in enumerate(replicas):
                beside = {(rank - 1) % size, rank, (rank + 1) % size}
                mixes = self.optimizer == "neighbour_averaging"
                at = np.mean([before[k] for k in beside], axis=0) if mixes else None
                local.step(w, gradients[rank](step, before[rank]), at=at)
            if self.optimizer == "model_averaging" and step % 2:
                mean = np.mean([w for w, _ in replicas], axis=0)
                for w, _ in replicas:
                    w[...] = mean
        return [w for w, _ in replicas]

    def _joined(self, w: Any, *minibatches: Any) -> Any:
        """The parameters after as many steps of the base optimizer on the joined minibatches."""
        samples = np.concatenate(minibatches[::2], axis=1)
        targets = np.concatenate(minibatches[1::2], axis=1)
        w, local = w.copy(), Local(self.base_optimizer(w))
        for step in range(self.steps):
            local.step(w, _gradient(samples, targets, step, w))
        return w


def _gradient(samples: Any, targets: Any, step: int, w: Any) -> Any:
    x, y = samples[step], targets[step]
    return np.transpose(x) @ (x @ w - y) / len(y)
