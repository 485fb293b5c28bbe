"""Parameter servers that do not wait for everybody: stale-synchronous and asynchronous.

Rank 0 is the server, the others are workers. A worker reads the parameters, takes its gradient
there, sends it, and waits for parameters again; its clock is the number of gradients it has sent.
The server applies each gradient as it comes. What a worker reads lacks the gradients that others
have yet to send: it is stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from d5test.distributed.optimizers import DistributedOptimizer, Gradient, Local
from d5test.reference.collectives import ANY, Recv, Schedule, Send


@dataclass(frozen=True)
class StaleSynchronous(DistributedOptimizer):
    """A worker may read while its clock is at most `bound` ahead of the slowest worker's.

    So it has seen all gradients up to `bound` clocks before its own. Ho et al., NIPS 2013 (SSP),
    section 2. 0 is bulk-synchronous, infinite is asynchronous (Dean et al., NIPS 2012, Downpour).
    Each gradient moves the parameters by a whole step: with `k` workers, divide the learning rate
    by `k` to compare with a step on the joined minibatch. Needs two ranks.
    """

    bound: float = inf

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """`steps` gradients of each worker, all of which only the server has seen in the end."""
        if rank == 0:
            return self._serve(size, w, steps)
        return self._work(w, gradient, steps)

    def _work(self, w: Any, gradient: Gradient, steps: int) -> Schedule:
        for step in range(steps):
            yield Recv(0, w)
            yield Send(0, gradient(step, w))

    def _serve(self, size: int, w: Any, steps: int) -> Schedule:
        local, g, clocks = Local(self.base), np.empty_like(w), dict.fromkeys(range(1, size), 0)
        waiting = set(clocks) if steps else set()
        while any(clock < steps for clock in clocks.values()):
            slowest = min(clocks.values())
            for worker in [w for w in sorted(waiting) if clocks[w] - slowest <= self.bound]:
                waiting.remove(worker)
                yield Send(worker, w)
            worker = yield Recv(ANY, g)
            local.step(w, g)
            clocks[worker] += 1
            if clocks[worker] < steps:
                waiting.add(worker)

    def workers(self, size: int) -> range:
        """All but the server."""
        return range(1, size)

    def steps_a_round(self, size: int) -> int:
        """A whole step for each worker's gradient."""
        return len(self.workers(size))

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: for each gradient, the parameters before it."""
        return 2 * (size - 1) * n * steps
