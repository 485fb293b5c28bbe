"""The operator of which distributed optimizers' cases are: ranks that fit a linear model.

A bar runs through it as through any other operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from d5test.case import Case, Operator, Tensor
from d5test.distributed.checks import ANYTHING, Pick
from d5test.distributed.communicator import run_copies
from d5test.distributed.optimizer import Gradient
from d5test.distributed.optimizers import CONSISTENT, DISTRIBUTED, GROWING
from d5test.distributed.rules import RULES, Event
from d5test.reference.collectives import Schedule
from d5test.reference.optimizers import OPTIMIZERS, Optimizer
from d5test.reference.steps import STEPS

EXACT: Mapping[str, float] = {
    "lr": 0.125, "momentum": 0.875, "rho": 0.875, "beta1": 0.875, "beta2": 0.9375,
    "epsilon": 2.0**-10, "accumulator": 0.125,
}  # fmt: skip
"""Hyperparameters that are exact in every dtype."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Descent(Operator):
    """Several ranks fit a linear model: `steps` steps of a distributed optimizer.

    Inputs: w, then X and y of each rank; outputs: w of each rank. Bars that run through it know
    the arithmetic of a distributed optimizer, so that its result can be told from that of a wrong
    one; what is right does not come from there, but from one process that has all minibatches.

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
        optimizer = DISTRIBUTED[self.optimizer](self.base_optimizer(w))

        def program(rank: int, size: int, w: Any) -> Schedule:
            gradient = self.gradient(rank, minibatches)
            return optimizer.train(rank, size, w, gradient, self.steps)

        return run_copies(program, [w] * (len(minibatches) // 2), self.order)[0]

    def base_optimizer(self, w: Any) -> Optimizer:
        """The base optimizer, its numbers as arrays like `w`."""
        step = STEPS[self.base]()
        exact = {name: value for name, value in EXACT.items() if name in step.attributes}
        return step.with_(**exact).optimizer(like=w)

    def gradient(self, rank: int, minibatches: Sequence[Any]) -> Gradient:
        """Of the loss of a rank's own minibatches."""
        return partial(_gradient, *minibatches[2 * rank : 2 * rank + 2])

    def sequential(self, w: Any, *minibatches: Any) -> list[Any]:
        """The parameters of each rank, by one process that has all minibatches."""
        gradients = [self.gradient(rank, minibatches) for rank in range(len(minibatches) // 2)]
        if self.optimizer in CONSISTENT:
            samples = np.concatenate(minibatches[::2], axis=1)
            joined = partial(_gradient, samples, np.concatenate(minibatches[1::2], axis=1))
            return self.by_rule(w, [joined], ()) * len(gradients)
        return self.by_rule(w, gradients, ())

    def by_rule(self, w: Any, gradients: Sequence[Gradient], events: Sequence[Event]) -> list[Any]:
        """The parameters of each rank, by the optimizer's rule."""
        optimizer = DISTRIBUTED[self.optimizer](self.base_optimizer(w))
        return RULES[self.optimizer](optimizer, w, gradients, self.steps, events)


@dataclass(frozen=True, kw_only=True, repr=False)
class Replay(Descent):
    """A `Descent` in which rank 0 takes messages in a known order."""

    events: tuple[Event, ...] = ()

    def forward(self, w: Any, *minibatches: Any) -> Any:
        """The parameters of each rank."""
        gradients = [self.gradient(rank, minibatches) for rank in range(len(minibatches) // 2)]
        return tuple(self.by_rule(w, gradients, self.events))


def _gradient(samples: Any, targets: Any, step: int, w: Any) -> Any:
    x, y = samples[step], targets[step]
    return np.transpose(x) @ (x @ w - y) / len(y)


def descent(optimizer: str, dtype: str, sizes: Sequence[int], pick: Pick) -> Case:
    """A few steps over any base optimizer. More parameters than samples, and fewer.

    One whose minibatches grow has some more, until they would grow a third time.
    """
    size, n, samples = pick(sizes), pick(range(1, 12)), pick(range(1, 6))
    steps = pick(range(1, 14 if optimizer in GROWING else 5))
    op = Descent(optimizer=optimizer, base=pick(tuple(OPTIMIZERS)), steps=steps,
                 order=pick(ANYTHING))  # fmt: skip
    minibatches = Tensor((steps, samples, n), dtype), Tensor((steps, samples), dtype)
    return Case(op, (Tensor((n,), dtype), *minibatches * size), seed=pick(ANYTHING))
