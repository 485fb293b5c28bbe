"""Distributed optimizers, over any base optimizer: the schedule that one rank's training is.

Each rank has parameters `w`, a flat array that training overwrites, and a `gradient` of its own
minibatches: `gradient(step, w)`, the mean over the minibatch's samples, counted from step 0. An
optimizer of `d5test.reference.optimizers` works element by element, so that all parameters of a
network are one array to it.

Averaged is always over all contributions, so that with minibatches of one size `Centralised` and
`Decentralised` take the steps that the base optimizer takes on the joined minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from d5test.reference.collectives import ALLREDUCE, Recv, Schedule, Send, broadcast, reduce
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

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """The schedule of one rank: `steps` steps, which overwrite `w`."""
        raise NotImplementedError

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks move, for `n` parameters."""
        raise NotImplementedError

    def workers(self, size: int) -> range:
        """The ranks that take gradients."""
        return range(size)

    def steps_a_round(self, size: int) -> int:
        """Whole steps by which one gradient of each worker moves the parameters.

        Divide the learning rate by it to compare with a step on the joined minibatch.
        """
        return 1

    def room(self, size: int) -> int:
        """Elements that `w` has beyond the parameters."""
        return 0

    def trained(self, replicas: Sequence[Any]) -> Any:
        """The parameters that training has led to, of all ranks' arrays afterwards."""
        return replicas[0]


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
class ModelAveraging(DistributedOptimizer):
    """Ranks step by themselves, and every few steps take the mean of their parameters.

    McDonald, Hall and Mann, NAACL 2010, section 4; Stich, ICLR 2019 (local SGD), algorithm 1.
    The slots of the base optimizer are not averaged.
    """

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

    def trained(self, replicas: Sequence[Any]) -> Any:
        """The mean, as if the last step were followed by one more average."""
        return np.mean(replicas, axis=0)


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

    def trained(self, replicas: Sequence[Any]) -> Any:
        """The mean, as in algorithm 1, line 7."""
        return np.mean(replicas, axis=0)


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
