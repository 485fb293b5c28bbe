"""Distributed optimizers whose ranks step by themselves, and average their parameters."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.distributed.graphs import GRAPHS
from d5test.distributed.optimizer import DistributedOptimizer, Gradient, Local
from d5test.reference.collectives import ALLREDUCE, Recv, Schedule, Send


@dataclass(frozen=True)
class ModelAveraging(DistributedOptimizer):
    """Ranks step by themselves, and every few steps take the mean of their parameters.

    McDonald, Hall and Mann, NAACL 2010, section 4; Stich, ICLR 2019 (local SGD), algorithm 1.
    The slots of the base optimizer are not averaged. With `every` 1 and plain gradient descent it
    is synchronous. `together` first steps are each followed by an average: post-local SGD (Lin et
    al., ICLR 2020).
    """

    averages = True  # as if the last step were followed by one more average
    every: int = 2
    together: int = 0
    algorithm: str = "ring"

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """Replicas agree after each `every` steps, and not between."""
        local, allreduce = Local(self.base), ALLREDUCE[self.algorithm].schedule
        for step in range(steps):
            local.step(w, gradient(step, w))
            if self.meets(step + 1):
                yield from allreduce(rank, size, w)
                w /= size

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send."""
        meetings = sum(self.meets(t) for t in range(1, steps + 1))
        return ALLREDUCE[self.algorithm].items(size, n) * meetings

    def meets(self, t: int) -> bool:
        """Whether parameters are averaged after `t` steps."""
        return t <= self.together or t % self.every == 0


@dataclass(frozen=True)
class NeighbourAveraging(DistributedOptimizer):
    """Ranks take the mean of their parameters and their neighbours', then step.

    w_i = mean of w_j over i and its neighbours, then a step with the gradient at the old w_i. Lian
    et al., NIPS 2017 (arXiv 1705.09056), algorithm 1, with equal weights.

    The listing ConsistentNeighbors of the Deep500 slides, which names that paper, averages the
    gradients instead, and divides by 3. So replicas drift apart as minibatches differ, and nothing
    brings them together again: it is the parameters that have to be averaged. On two ranks both
    neighbours are one rank, and one rank has none: there 3 is wrong, the mean is over those that
    there are.
    """

    averages = True  # algorithm 1, line 7
    graph: str = "ring"

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """Replicas differ; their mean moves by the mean of their steps."""
        local, mixed = Local(self.base), np.empty_like(w)
        others = self.neighbours(rank, size)
        for step in range(steps):
            g = gradient(step, w)
            mixed[...] = w
            yield from reduce_from(others, mixed)
            local.step(w, g, at=mixed / (len(others) + 1))

    def sent(self, size: int, n: int, steps: int) -> Sequence[int]:
        """`n` items to each neighbour."""
        return [len(self.neighbours(rank, size)) * n * steps for rank in range(size)]

    def neighbours(self, rank: int, size: int) -> tuple[int, ...]:
        """The ranks beside this one in the graph."""
        return GRAPHS[self.graph](rank, size)


def reduce_from(others: Sequence[int], x: Any) -> Schedule:
    """The sum of `x` at this rank and at others, which sum from it as well."""
    parts = [np.empty_like(x) for _ in others]
    yield (
        *(Send(other, x) for other in others),
        *(Recv(other, part) for other, part in zip(others, parts, strict=True)),
    )
    for part in parts:
        np.add(x, part, out=x)


@dataclass(frozen=True)
class FederatedAveraging(DistributedOptimizer):
    """In each round some ranks, drawn by `seed`, train from rank 0's parameters on their own.

    After `every` steps rank 0 has the mean of theirs, weighted by the number of samples of each
    that took part: sum of n_k w_k over sum of n_k. Clients keep no state. The others do not train
    in this round. McMahan et al., AISTATS 2017, algorithm 1.

    samples  n_k of rank k, again from the first after the last
    share    of the ranks that take part in a round; at least one does
    """

    every: int = 2
    share: float = 0.5
    samples: tuple[int, ...] = (3, 1, 2)
    seed: int = 0

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """Rank 0 is the server, and a client as any other. Its parameters are trained."""
        for first in range(0, steps, self.every):
            chosen = self.clients(size, first // self.every)
            start = w.copy()
            if rank == 0:
                yield tuple(Send(k, start) for k in chosen if k > 0)
            elif rank in chosen:
                yield Recv(0, w)
            if rank in chosen:
                local = Local(self.base)
                for step in range(first, min(first + self.every, steps)):
                    local.step(w, gradient(step, w))
            if rank == 0:
                yield from self._weigh(chosen, w)
            elif rank in chosen:
                yield Send(0, w)

    def _weigh(self, chosen: Sequence[int], w: Any) -> Schedule:
        """The weighted mean over clients at rank 0, in the order of ranks."""
        total, part = np.zeros_like(w), np.empty_like(w)
        for client in chosen:
            if client > 0:
                yield Recv(client, part)
            total += self.weight(client) * (part if client > 0 else w)
        w[...] = total / sum(map(self.weight, chosen))

    def clients(self, size: int, number: int) -> tuple[int, ...]:
        """The ranks that take part in a round, in order."""
        chance = random.Random(f"{self.seed} {number}")
        return tuple(sorted(chance.sample(range(size), max(1, round(self.share * size)))))

    def weight(self, rank: int) -> int:
        """Samples of a rank."""
        return self.samples[rank % len(self.samples)]

    def sent(self, size: int, n: int, steps: int) -> Sequence[int]:
        """Rank 0 sends `n` items to each client, and each client `n` to rank 0."""
        rounds = range(-(-steps // self.every))
        clients = [k for number in rounds for k in self.clients(size, number) if k > 0]
        return [n * (len(clients) if rank == 0 else clients.count(rank)) for rank in range(size)]
