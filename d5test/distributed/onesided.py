"""A parameter server that takes no part: workers read and move its parameters by one-sided access.

Rank 0's array holds the parameters, and behind them a clock for each rank: the number of gradients
by which it has moved them. All ranks are workers, rank 0 too. The state of the base optimizer
is each worker's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from d5test.distributed.optimizers import DistributedOptimizer, Gradient, Local
from d5test.reference.collectives import Accumulate, Get, Schedule


@dataclass(frozen=True)
class OneSided(DistributedOptimizer):
    """A worker adds its step to the server's parameters, wherever these have gone meanwhile.

    As `StaleSynchronous` in its bound: a worker that is further ahead reads the clocks until the
    slowest has come near. Steps are added element by element (Recht et al., NIPS 2011, Hogwild).
    """

    bound: float = inf

    exposed = True

    def room(self, size: int) -> int:
        """The clocks."""
        return size

    def steps_a_round(self, size: int) -> int:
        """A whole step for each worker's gradient."""
        return len(self.workers(size))

    def items(self, size: int, n: int, steps: int) -> int:
        """Without a bound: clocks, parameters, a step and a tick of the clock for each gradient.

        With one, the clocks are read as often as it takes.
        """
        return (size + n + n + 1) * size * steps

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """`w` of rank 0 has all steps in the end; the others' stay as they are."""
        n = len(w) - self.room(size)
        local, here, clocks = Local(self.base), np.zeros_like(w[:n]), np.zeros_like(w[n:])
        for step in range(steps):
            while True:
                yield Get(0, clocks, start=n)
                if step - clocks.min() <= self.bound:
                    break
            yield Get(0, here)
            moved = here.copy()
            local.step(moved, gradient(step, here))
            yield Accumulate(0, moved - here)
            # after the step, so that who sees the clock finds the step
            yield Accumulate(0, np.ones_like(clocks[:1]), start=n + rank)
