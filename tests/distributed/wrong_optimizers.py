"""Distributed optimizers that are wrong on purpose, each in one way."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from d5test.distributed.averaging import (
    FederatedAveraging,
    ModelAveraging,
    NeighbourAveraging,
    reduce_from,
)
from d5test.distributed.graphs import ring
from d5test.distributed.optimizer import Gradient, Local
from d5test.distributed.optimizers import Compressed, Decentralised, GrowingMinibatch
from d5test.distributed.servers import (
    Centralised,
    ElasticAveraging,
    Hierarchical,
    OneSided,
    Sharded,
    StalenessAware,
    StaleSynchronous,
)
from d5test.reference.collectives import (
    ALLREDUCE,
    ANY,
    Accumulate,
    Recv,
    Schedule,
    Send,
    width,
    within,
)


@dataclass(frozen=True)
class OneRankTooFew(Decentralised):
    """The mean is over all ranks but one."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local = Local(self.base)
        for step in range(steps):
            g = gradient(step, w)
            yield from ALLREDUCE[self.algorithm].schedule(rank, size, g)
            local.step(w, g / max(size - 1, 1))


@dataclass(frozen=True)
class MinibatchesSummed(GrowingMinibatch):
    """The gradients of a step's minibatches are added up: the mean is over ranks alone."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local = Local(self.base)
        for part in self.parts(steps):
            g = sum(gradient(step, w) for step in part)
            yield from ALLREDUCE["ring"].schedule(rank, size, g)
            local.step(w, g / size)


@dataclass(frozen=True)
class LastIsFull(GrowingMinibatch):
    """The last step divides by as many minibatches as it should have had."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local, full = Local(self.base), 1
        for part in self.parts(steps):
            full = max(full, len(part))
            g = sum(gradient(step, w) for step in part)
            yield from ALLREDUCE["ring"].schedule(rank, size, g)
            local.step(w, g / (size * full))


@dataclass(frozen=True)
class SummedEachTime(GrowingMinibatch):
    """Right, but each minibatch has an allreduce of its own."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local = Local(self.base)
        for part in self.parts(steps):
            total = 0 * w
            for step in part:
                g = gradient(step, w)
                yield from ALLREDUCE["ring"].schedule(rank, size, g)
                total = total + g
            local.step(w, total / (size * len(part)))


@dataclass(frozen=True)
class Unremembered(Compressed):
    """Each step begins with nothing owed."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local = Local(self.base)
        for step in range(steps):
            g = gradient(step, w)
            state = self.compressor.start(len(w), w.dtype, rank, self.seed)
            yield from self.compressor.mean(rank, size, g, state)
            local.step(w, g)


@dataclass(frozen=True)
class StepsCompressed(Compressed):
    """Each rank steps on what it has sent itself."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local, state = Local(self.base), self.compressor.start(len(w), w.dtype, rank, self.seed)
        for step in range(steps):
            g = gradient(step, w)
            own = g.copy()
            yield from self.compressor.mean(rank, size, g, state)
            local.step(w, np.where(g != 0, own, 0))


@dataclass(frozen=True)
class Silent(Decentralised):
    """Rank `who` sends zeros in the place of its gradient."""

    who: int = 0

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        def told(step: int, w: Any) -> Any:
            return gradient(step, w) * (rank != self.who)

        yield from super().train(rank, size, w, told, steps)


@dataclass(frozen=True)
class Raising(Decentralised):
    """It divides by nothing."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        yield from super().train(rank, size, w, gradient, steps)
        w /= 1 // (steps - steps)


@dataclass(frozen=True)
class StepsAveraged(Decentralised):
    """Each rank steps with its own gradient, then parameters are averaged: right for plain SGD."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local = Local(self.base)
        for step in range(steps):
            local.step(w, gradient(step, w))
            yield from ALLREDUCE[self.algorithm].schedule(rank, size, w)
            w /= size


class Forgets:
    """Servers begin each step with fresh slots."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        once: Any = super()
        for step in range(steps):
            yield from once.train(rank, size, w, lambda _, at, t=step: gradient(t, at), 1)


@dataclass(frozen=True)
class Forgetful(Forgets, Centralised):
    """The server does."""


@dataclass(frozen=True)
class GradientsAmongNeighbours(NeighbourAveraging):
    """As the slides have it: the gradients are averaged, and divided by 3."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local, others = Local(self.base), ring(rank, size)
        parts = [np.empty_like(w) for _ in others]
        for step in range(steps):
            g = gradient(step, w)
            yield (
                *(Send(other, g) for other in others),
                *(Recv(other, part) for other, part in zip(others, parts, strict=True)),
            )
            local.step(w, sum(parts, g) / 3)


@dataclass(frozen=True)
class LooksAhead(NeighbourAveraging):
    """The gradient is taken where the step begins, at the mean: right where gradients are told."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local = Local(self.base)
        for step in range(steps):
            mixed = np.array(w)
            yield from reduce_from(ring(rank, size), mixed)
            mixed /= len(ring(rank, size)) + 1
            local.step(w, gradient(step, mixed), at=mixed)


@dataclass(frozen=True)
class AveragesOnce(ModelAveraging):
    """Replicas are averaged after the first steps, and go their own ways then."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local = Local(self.base)
        for step in range(steps):
            local.step(w, gradient(step, w))
            if step + 1 == self.every:
                yield from ALLREDUCE[self.algorithm].schedule(rank, size, w)
                w /= size


@dataclass(frozen=True)
class StartsAnew(ModelAveraging):
    """The base optimizer forgets its slots with each average."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        for first in range(0, steps, self.every):
            left = min(self.every, steps - first)
            later = partial(_later, gradient, first)
            yield from super().train(rank, size, w, later, left)


def _later(gradient: Gradient, first: int, step: int, w: Any) -> Any:
    return gradient(first + step, w)


@dataclass(frozen=True)
class RanksSwapped(NeighbourAveraging):
    """A rank takes the gradient of the minibatch of the rank at the other end."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        other, theirs = size - 1 - rank, np.empty_like(w)

        def swapped(step: int, at: Any) -> Any:
            return theirs.copy()

        for step in range(steps):
            g = gradient(step, w)
            if other == rank:
                theirs[...] = g
            else:
                yield Send(other, g), Recv(other, theirs)
            yield from super().train(rank, size, w, swapped, 1)


@dataclass(frozen=True)
class Hasty(StaleSynchronous):
    """The server lets a worker run one clock further ahead than it may."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        return StaleSynchronous(self.base, self.bound + 1).train(rank, size, w, gradient, steps)


@dataclass(frozen=True)
class Lossy(StaleSynchronous):
    """The server drops every fifth gradient."""

    def _serve(self, size: int, w: Any, steps: int) -> Schedule:
        served, last, count = super()._serve(size, w, steps), np.array(w), 0
        heard: int | None = None
        while True:
            try:
                step = served.send(heard)  # type: ignore[arg-type]
            except StopIteration:
                return
            count += isinstance(step, Recv)
            if count % 5 == 0:
                w[...] = last
            last = np.array(w)
            heard = yield step


@dataclass(frozen=True)
class Selfish(StaleSynchronous):
    """The server answers one worker only: the others wait for ever."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        if rank > 0:
            yield Recv(0, w)
            yield Send(0, gradient(0, w))
        else:
            yield Send(size - 1, w)
            yield Recv(ANY, np.empty_like(w))


@dataclass(frozen=True)
class TornClock(OneSided):
    """The clock ticks before the step is there: who sees the one does not find the other."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        kept: Any = None
        for step in super().train(rank, size, w, gradient, steps):
            if not isinstance(step, Accumulate):
                yield step
            elif kept is None:
                kept = step
            else:
                yield step
                yield kept
                kept = None


@dataclass(frozen=True)
class ShardForgotten(Sharded):
    """The second server hands its shard out as it was."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        base = self.base.with_(lr=0.0) if rank == 1 else self.base
        yield from Sharded(base).train(rank, size, w, gradient, steps)


@dataclass(frozen=True)
class ShardsSlotsShared(Forgets, Sharded):
    """Each server of a shard does."""


@dataclass(frozen=True)
class AddedInReverse(Sharded):
    """A server adds the gradients from the last rank to the first: the bits are others."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        reverse = range(size)[::-1]
        yield from within(super().train(size - 1 - rank, size, w, gradient, steps), reverse)


@dataclass(frozen=True)
class NodeLeftOut(Hierarchical):
    """The server of a node sends its own gradient alone."""

    def gather(self, rank: int, size: int, g: Any) -> Schedule:
        served = rank % width(size) > 0
        return super().gather(rank, size, np.zeros_like(g) if served else g)


@dataclass(frozen=True)
class OneNeighbourTooFew(NeighbourAveraging):
    """The sum over a rank and its neighbours is divided by the number of neighbours."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local, mixed = Local(self.base), np.empty_like(w)
        others = self.neighbours(rank, size)
        for step in range(steps):
            g = gradient(step, w)
            mixed[...] = w
            yield from reduce_from(others, mixed)
            local.step(w, g, at=mixed / max(len(others), 1))


@dataclass(frozen=True)
class OneSidedWeights(NeighbourAveraging):
    """Rows sum to one, columns do not: rank 0 keeps what it has."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local, mixed = Local(self.base), np.empty_like(w)
        others = self.neighbours(rank, size)
        for step in range(steps):
            g = gradient(step, w)
            mixed[...] = w
            yield from reduce_from(others, mixed)
            local.step(w, g, at=w if rank == 0 else mixed / (len(others) + 1))


@dataclass(frozen=True)
class Lazy(NeighbourAveraging):
    """Half the mean, half what the rank has itself: doubly stochastic, but slower."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local, mixed = Local(self.base), np.empty_like(w)
        others = self.neighbours(rank, size)
        for step in range(steps):
            g = gradient(step, w)
            mixed[...] = w
            yield from reduce_from(others, mixed)
            local.step(w, g, at=(mixed / (len(others) + 1) + w) / 2)


@dataclass(frozen=True)
class MeanOverTooFew(ModelAveraging):
    """The parameters are averaged over all ranks but one."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        local = Local(self.base)
        for step in range(steps):
            local.step(w, gradient(step, w))
            if self.meets(step + 1):
                yield from ALLREDUCE[self.algorithm].schedule(rank, size, w)
                w /= max(size - 1, 1)


@dataclass(frozen=True)
class Unweighted(FederatedAveraging):
    """Each client counts as much as any other."""

    def weight(self, rank: int) -> int:
        return 1


@dataclass(frozen=True)
class OneClientTooMany(FederatedAveraging):
    """The weighted sum is divided by the samples of the clients, the first one's counted twice."""

    def _weigh(self, chosen: Sequence[int], w: Any) -> Schedule:
        yield from super()._weigh(chosen, w)
        samples = sum(self.weight(k) for k in chosen)
        w *= samples / (samples + self.weight(chosen[0]))


@dataclass(frozen=True)
class AlwaysTheSame(FederatedAveraging):
    """The clients of the first round take part in all of them."""

    def clients(self, size: int, number: int) -> tuple[int, ...]:
        return super().clients(size, 0)


@dataclass(frozen=True)
class FromOwnParameters(FederatedAveraging):
    """A client goes on from its own parameters, and not from rank 0's."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        own = w.copy()
        for step in super().train(rank, size, w, gradient, steps):
            own[...] = w
            yield step
            if isinstance(step, Recv) and rank > 0:
                w[...] = own


@dataclass(frozen=True)
class CentreStays(ElasticAveraging):
    """The force moves the worker alone."""

    def apply(self, local: Local, w: Any, g: Any, missed: int) -> None:
        pass


@dataclass(frozen=True)
class WorkerStays(ElasticAveraging):
    """The force moves the centre alone."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        if rank == 0:
            yield from super().train(rank, size, w, gradient, steps)
            return
        local, centre = Local(self.base), np.empty_like(w)
        for step in range(steps):
            g = gradient(step, w)
            if step % self.every == 0:
                yield Recv(0, centre)
                yield Send(0, (w - centre) * self.moving_rate / (size - 1))
            local.step(w, g)


@dataclass(frozen=True)
class PulledFirst(ElasticAveraging):
    """The gradient is that where the force has moved the worker: right where it is told."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        if rank == 0:
            yield from super().train(rank, size, w, gradient, steps)
            return
        local, centre = Local(self.base), np.empty_like(w)
        for step in range(steps):
            if step % self.every == 0:
                yield Recv(0, centre)
                force = (w - centre) * self.moving_rate / (size - 1)
                w -= force
                yield Send(0, force)
            local.step(w, gradient(step, w))


@dataclass(frozen=True)
class HastyElastic(ElasticAveraging):
    """The server lets a worker run one round further ahead than it may."""

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        right = ElasticAveraging(self.base, self.bound + 1, every=self.every)
        return right.train(rank, size, w, gradient, steps)


@dataclass(frozen=True)
class OneLessStale(StalenessAware):
    """A gradient counts as fresher than it is by one."""

    def apply(self, local: Local, w: Any, g: Any, missed: int) -> None:
        super().apply(local, w, g, missed - 1)
