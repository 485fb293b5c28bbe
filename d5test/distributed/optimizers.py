"""Distributed optimizers, over any base optimizer: the schedule that one rank's training is.

Each rank has parameters `w`, a flat array that training overwrites, and a `gradient` of its own
minibatches: `gradient(step, w)`, the mean over the minibatch's samples, counted from step 0. An
optimizer of `d5test.reference.optimizers` works element by element, so that all parameters of a
network are one array to it.

Averaged is always over all contributions, so that with minibatches of one size `Centralised` and
`Decentralised` take the steps that the base optimizer takes on the joined minibatch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np

from d5test.reference.collectives import (
    ALLREDUCE,
    ANY,
    Accumulate,
    Get,
    Recv,
    Schedule,
    Send,
    broadcast,
    reduce,
)
from d5test.reference.compressors import QSGD, Compressor, PowerSGD, TopK
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
        raise NotImplementedError

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


@dataclass(frozen=True)
class Centralised(DistributedOptimizer):
    """Rank 0 is the parameter server: it gathers the gradients, steps, and hands out parameters.

    Consistent: nobody goes on before it has the new parameters. Li et al., OSDI 2014, section 2.
    """

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """The slots of the base optimizer are at rank 0 alone."""
        local = Local(self.base)
        for step in range(steps):
            g = gradient(step, w)
            yield from reduce(rank, size, g)
            if rank == 0:
                local.step(w, g / size)
            yield from broadcast(rank, size, w)

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: `n` up and `n` down for each rank but one."""
        return 2 * (size - 1) * n * steps


@dataclass(frozen=True)
class Decentralised(DistributedOptimizer):
    """Every rank has the mean gradient, by allreduce, and steps by itself.

    Consistent, since an allreduce gives all ranks the same bits.
    """

    algorithm: str = "ring"

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """The slots of the base optimizer are the same at all ranks."""
        local, allreduce = Local(self.base), ALLREDUCE[self.algorithm].schedule
        for step in range(steps):
            g = gradient(step, w)
            yield from allreduce(rank, size, g)
            local.step(w, g / size)

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: those of the allreduce."""
        return ALLREDUCE[self.algorithm].items(size, n) * steps


@dataclass(frozen=True)
class Compressed(DistributedOptimizer):
    """Every rank has the mean of what the ranks' gradients are compressed to, and steps by itself.

    Replicas are equal, since the mean has the same bits at all ranks. With error feedback a step
    has what earlier ones left out: Stich et al., NeurIPS 2018; Karimireddy et al., ICML 2019.
    """

    compressor: Compressor = field(default_factory=TopK)
    seed: int = 0

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """The slots of the base optimizer are the same at all ranks, the residuals are not."""
        local, state = Local(self.base), self.compressor.start(len(w), w.dtype, rank, self.seed)
        for step in range(steps):
            g = gradient(step, w)
            yield from self.compressor.mean(rank, size, g, state)
            local.step(w, g)

    def nbytes(self, size: int, w: Any, steps: int) -> int:
        """Those of the compressor, where they do not depend on the gradients' values."""
        return self.compressor.sent([w] * size) * steps


@dataclass(frozen=True)
class ModelAveraging(DistributedOptimizer):
    """Ranks step by themselves, and every few steps take the mean of their parameters.

    McDonald, Hall and Mann, NAACL 2010, section 4; Stich, ICLR 2019 (local SGD), algorithm 1.
    The slots of the base optimizer are not averaged.
    """

    averages = True  # as if the last step were followed by one more average
    every: int = 2
    algorithm: str = "ring"

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """Replicas agree after each `every` steps, and not between."""
        local, allreduce = Local(self.base), ALLREDUCE[self.algorithm].schedule
        for step in range(steps):
            local.step(w, gradient(step, w))
            if (step + 1) % self.every == 0:
                yield from allreduce(rank, size, w)
                w /= size

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send."""
        return ALLREDUCE[self.algorithm].items(size, n) * (steps // self.every)


@dataclass(frozen=True)
class NeighbourAveraging(DistributedOptimizer):
    """Ranks in a ring take the mean of their parameters and their neighbours', then step.

    w_i = mean of w_j over i and its neighbours, then a step with the gradient at the old w_i. Lian
    et al., NIPS 2017 (arXiv 1705.09056), algorithm 1, with equal weights.

    The listing ConsistentNeighbors of the Deep500 slides, which names that paper, averages the
    gradients instead, and divides by 3. So replicas drift apart as minibatches differ, and nothing
    brings them together again: it is the parameters that have to be averaged. On two ranks both
    neighbours are one rank, and one rank has none: there 3 is wrong, the mean is over those that
    there are.
    """

    averages = True  # algorithm 1, line 7

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """Replicas differ; their mean moves by the mean of their steps."""
        local, mixed = Local(self.base), np.empty_like(w)
        for step in range(steps):
            g = gradient(step, w)
            mixed[...] = w
            yield from reduce_from_neighbours(rank, size, mixed)
            local.step(w, g, at=mixed / (len(neighbours(rank, size)) + 1))

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: `n` to each neighbour."""
        return sum(len(neighbours(rank, size)) for rank in range(size)) * n * steps


def neighbours(rank: int, size: int) -> tuple[int, ...]:
    """The ranks beside this one in a ring, itself excluded: two, or one, or none."""
    return tuple(sorted({(rank - 1) % size, (rank + 1) % size} - {rank}))


def reduce_from_neighbours(rank: int, size: int, x: Any) -> Schedule:
    """The sum of `x` at this rank and at its neighbours."""
    others = neighbours(rank, size)
    parts = [np.empty_like(x) for _ in others]
    yield (
        *(Send(other, x) for other in others),
        *(Recv(other, part) for other, part in zip(others, parts, strict=True)),
    )
    for part in parts:
        np.add(x, part, out=x)


@dataclass(frozen=True)
class StaleSynchronous(DistributedOptimizer):
    """A server that does not wait for everybody: rank 0; the others are workers.

    A worker reads the parameters, takes its gradient there, sends it, and waits for parameters
    again; its clock is the number of gradients it has sent. The server applies each gradient as it
    comes. What a worker reads lacks the gradients that others have yet to send: it is stale.

    A worker may read while its clock is at most `bound` ahead of the slowest worker's.
    So it has seen all gradients up to `bound` clocks before its own. Ho et al., NIPS 2013 (SSP),
    section 2. 0 is bulk-synchronous, infinite is asynchronous (Dean et al., NIPS 2012, Downpour).
    Each gradient moves the parameters by a whole step: with `k` workers, divide the learning rate
    by `k` to compare with a step on the joined minibatch. Needs two ranks.
    """

    whole_steps = True
    bound: float = inf

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """`steps` gradients of each worker, all of which only the server has seen in the end."""
        if rank == 0:
            yield from self._serve(size, w, steps)
            return
        for step in range(steps):
            yield Recv(0, w)
            yield Send(0, gradient(step, w))

    def _serve(self, size: int, w: Any, steps: int) -> Schedule:
        local, g, clocks = Local(self.base), np.empty_like(w), dict.fromkeys(range(1, size), 0)
        waiting = set(clocks)
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

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: for each gradient, the parameters before it."""
        return 2 * (size - 1) * n * steps


@dataclass(frozen=True)
class OneSided(DistributedOptimizer):
    """A server that takes no part: workers read and move its parameters by one-sided access.

    Rank 0's array holds the parameters, and behind them a clock for each rank: the number of
    gradients by which it has moved them. All ranks are workers, rank 0 too. The state of the base
    optimizer is each worker's own.

    A worker adds its step to the server's parameters, wherever these have gone meanwhile.
    As `StaleSynchronous` in its bound: a worker that is further ahead reads the clocks until the
    slowest has come near. Steps are added element by element (Recht et al., NIPS 2011, Hogwild).
    """

    exposed = True
    whole_steps = True
    bound: float = inf

    def room(self, size: int) -> int:
        """The clocks."""
        return size

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


Distributed = Callable[[Optimizer], DistributedOptimizer]
"""A distributed optimizer, over any base optimizer."""
CONSISTENT: Mapping[str, Distributed] = {
    "centralised": Centralised,
    "decentralised": Decentralised,
    "decentralised-halving_doubling": partial(Decentralised, algorithm="halving_doubling"),
}
"""Those that take the steps of the base optimizer on the joined minibatch, with equal replicas."""
COMPRESSED: Mapping[str, Distributed] = {
    "compressed-topk": partial(Compressed, compressor=TopK(share=0.1)),
    "compressed-qsgd-4": partial(Compressed, compressor=QSGD(bits=4)),
    "compressed-powersgd": partial(Compressed, compressor=PowerSGD(columns=32)),
}
"""Those whose replicas are equal, and whose steps are as exact as their compressor."""
AVERAGING: Mapping[str, Distributed] = {
    "neighbour_averaging": NeighbourAveraging,
    "model_averaging": ModelAveraging,
}
"""Those whose replicas differ, and are averaged."""
SERVERS: Mapping[str, Distributed] = {
    "stale_synchronous-0": partial(StaleSynchronous, bound=0),
    "stale_synchronous-2": partial(StaleSynchronous, bound=2),
    "asynchronous": StaleSynchronous,
}
"""Those with a server and stale reads."""
ONE_SIDED: Mapping[str, Distributed] = {
    "one_sided": OneSided,
    "one_sided-2": partial(OneSided, bound=2),
}
"""Those with parameters that workers reach by themselves, and stale reads."""
DISTRIBUTED: Mapping[str, Distributed] = {
    **CONSISTENT,
    **COMPRESSED,
    **AVERAGING,
    **SERVERS,
    **ONE_SIDED,
}
"""By name."""
