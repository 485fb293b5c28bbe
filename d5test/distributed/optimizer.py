"""What trains on many ranks, over any base optimizer: the schedule that one rank's training is.

Each rank has parameters `w`, a flat array that training overwrites, and a `gradient` of its own
minibatches: `gradient(step, w)`, the mean over the minibatch's samples, counted from step 0. An
optimizer of `d5test.reference.optimizers` works element by element, so that all parameters of a
network are one array to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from d5test.reference.collectives import Schedule
from d5test.reference.optimizers import Optimizer

Gradient = Callable[[int, Any], Any]
"""(step, parameters) -> gradient of this rank's minibatch, an array that may be overwritten."""


@dataclass
class Local:
    """A base optimizer at work on one array: the step number and the slots of its state."""

    base: Optimizer
    t: int = 0
    slots: tuple[Any, ...] | None = None

    def step(self, w: Any, g: Any, at: Any = None) -> None:
        """Overwrite `w` by what one step with the gradient `g` makes of `at`, or of `w` itself."""
        if self.slots is None:
            self.slots = self.base.fresh(np, w)
        self.t += 1
        w[...], *slots = self.base.apply(np, self.t, w if at is None else at, g, *self.slots)
        self.slots = tuple(slots)


@dataclass(frozen=True)
class DistributedOptimizer:
    """What trains on many ranks, over the optimizer `base`."""

    base: Optimizer
    exposed: ClassVar[bool] = False
    """Whether ranks reach into each other's arrays."""
    averages: ClassVar[bool] = False
    """Whether training leads to the mean of the replicas, and not to that of rank 0."""
    whole_steps: ClassVar[bool] = False
    """Whether each worker's gradient makes a whole step."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """The schedule of one rank: `steps` steps, which overwrite `w`."""
        raise NotImplementedError

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks move, for `n` parameters."""
        return sum(self.sent(size, n, steps))

    def sent(self, size: int, n: int, steps: int) -> Sequence[int]:
        """Items that each rank sends, where that is told rank by rank: else nothing."""
        return ()

    def nbytes(self, size: int, w: Any, steps: int) -> int:
        """Bytes that all ranks move, for parameters like `w`."""
        return self.items(size, len(w), steps) * int(w.itemsize)

    def workers(self, size: int) -> range:
        """The ranks that take gradients."""
        return range(size)

    def steps_a_round(self, size: int) -> int:
        """Whole steps by which one gradient of each worker moves the parameters.

        Divide the learning rate by it to compare with a step on the joined minibatch.
        """
        return len(self.workers(size)) if self.whole_steps else 1

    def room(self, size: int) -> int:
        """Elements that `w` has beyond the parameters."""
        return 0

    def trained(self, replicas: Sequence[Any]) -> Any:
        """The parameters that training has led to, of all ranks' arrays afterwards."""
        return np.mean(replicas, axis=0) if self.averages else replicas[0]
