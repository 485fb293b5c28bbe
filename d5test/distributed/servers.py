"""Distributed optimizers with parameters at a server, rank 0, or at several, the first ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from d5test.distributed.optimizer import DistributedOptimizer, Gradient, Local
from d5test.reference.collectives import (
    ANY,
    Accumulate,
    Get,
    Recv,
    Schedule,
    Send,
    broadcast,
    reduce,
    width,
    within,
)


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
            yield from self.gather(rank, size, g)
            if rank == 0:
                local.step(w, g / size)
            yield from self.hand_out(rank, size, w)

    def gather(self, rank: int, size: int, g: Any) -> Schedule:
        """The sum of all ranks' `g` at rank 0."""
        return reduce(rank, size, g)

    def hand_out(self, rank: int, size: int, w: Any) -> Schedule:
        """What rank 0 has, at every rank."""
        return broadcast(rank, size, w)

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: `n` up and `n` down for each rank but one."""
        return 2 * (size - 1) * n * steps


@dataclass(frozen=True)
class Hierarchical(Centralised):
    """Each node has a server, its first rank, which sums its ranks' gradients for rank 0.

    Only these go on to rank 0, and hand out the new parameters in their nodes. Nodes have
    `d5test.reference.collectives.width` ranks. Two levels: Gupta, Zhang and Wang, ICDM 2016
    (Rudra), whose learners push through a tree of servers.
    """

    def gather(self, rank: int, size: int, g: Any) -> Schedule:
        """In each node, then among their servers, each in the order of ranks."""
        for members in _levels(rank, size):
            yield from within(_summed(members.index(rank), len(members), g), members)

    def hand_out(self, rank: int, size: int, w: Any) -> Schedule:
        """Among the servers, then in each node."""
        for members in reversed(_levels(rank, size)):
            others, here = members[1:], members[0] == rank
            yield tuple(Send(other, w) for other in others) if here else (Recv(members[0], w),)

    def sent(self, size: int, n: int, steps: int) -> Sequence[int]:
        """A rank sends its sum up, but for rank 0, and parameters to those whose server it is."""
        below = [
            sum(len(members) - 1 for members in _levels(rank, size) if members[0] == rank)
            for rank in range(size)
        ]
        return [((rank > 0) + served) * n * steps for rank, served in enumerate(below)]

    def items(self, size: int, n: int, steps: int) -> int:
        """As with one server: `n` up and `n` down for each rank but one."""
        return sum(self.sent(size, n, steps))


def _levels(rank: int, size: int) -> list[range]:
    """The groups of this rank, from its node up, the server first in each."""
    of_node = width(size)
    first = rank - rank % of_node
    node, servers = range(first, min(first + of_node, size)), range(0, size, of_node)
    return [node, servers] if rank == first else [node]


def _summed(rank: int, size: int, x: Any) -> Schedule:
    """The sum at rank 0, in the order of ranks."""
    if rank > 0:
        yield Send(0, x)
        return
    part = np.empty_like(x)
    for other in range(1, size):
        yield Recv(other, part)
        np.add(x, part, out=x)


@dataclass(frozen=True)
class Sharded(DistributedOptimizer):
    """The parameters are partitioned over the first `servers` ranks, which are workers as well.

    Each server has its shard's slots, sums all ranks' gradients of the shard in the order of
    ranks, steps, and hands out the shard. So the bits are the same for any number of servers.
    Dean et al., NIPS 2012, section 4; Li et al., OSDI 2014, section 2.
    """

    servers: int = 2

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """All shards are on their way at the same time."""
        shards = np.array_split(w, min(self.servers, size))
        serves, others = rank < len(shards), [other for other in range(size) if other != rank]
        mine, local = shards[rank] if serves else w[:0], Local(self.base)
        parts = {other: np.empty_like(mine) for other in others if serves}
        for step in range(steps):
            pieces = np.array_split(gradient(step, w), len(shards))
            yield (
                *(Send(server, pieces[server]) for server in range(len(shards)) if server != rank),
                *(Recv(other, part) for other, part in parts.items()),
            )
            if serves:
                in_order = [pieces[rank] if r == rank else parts[r] for r in range(size)]
                local.step(mine, sum(in_order[1:], in_order[0]) / size)
            yield (
                *(Send(other, mine) for other in parts),
                *(Recv(k, shard) for k, shard in enumerate(shards) if k != rank),
            )

    def sent(self, size: int, n: int, steps: int) -> Sequence[int]:
        """Gradients of all shards but a rank's own, and its own shard to all others."""
        shards = [len(shard) for shard in np.array_split(np.empty(n), min(self.servers, size))]
        owned = shards + [0] * (size - len(shards))
        return [(n - own + (size - 1) * own) * steps for own in owned]


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
            yield from self._serve(size, w, self.rounds(steps))
            return
        for step in range(steps):
            yield Recv(0, w)
            yield Send(0, gradient(step, w))

    def _serve(self, size: int, w: Any, rounds: int) -> Schedule:
        local, g, clocks = Local(self.base), np.empty_like(w), dict.fromkeys(range(1, size), 0)
        waiting, applied, read_at = set(clocks), 0, dict.fromkeys(clocks, 0)
        while any(clock < rounds for clock in clocks.values()):
            slowest = min(clocks.values())
            for worker in [w for w in sorted(waiting) if clocks[w] - slowest <= self.bound]:
                waiting.remove(worker)
                read_at[worker] = applied
                yield Send(worker, w)
            worker = yield Recv(ANY, g)
            self.apply(local, w, g, applied - read_at[worker])
            applied += 1
            clocks[worker] += 1
            if clocks[worker] < rounds:
                waiting.add(worker)

    def apply(self, local: Local, w: Any, g: Any, missed: int) -> None:
        """Move `w` by what a worker sent, whose read lacks `missed` of those applied since."""
        local.step(w, g)

    def workers(self, size: int) -> range:
        """All but the server."""
        return range(1, size)

    def rounds(self, steps: int) -> int:
        """How often each worker reads, and sends."""
        return steps

    def items(self, size: int, n: int, steps: int) -> int:
        """Items that all ranks send: in each round, the parameters and what a worker sends."""
        return 2 * (size - 1) * n * self.rounds(steps)


@dataclass(frozen=True)
class StalenessAware(StaleSynchronous):
    """The server divides the learning rate by the gradient's staleness, if that is not zero.

    Staleness is the number of gradients that were applied since the worker's read. Zhang, Gupta,
    Lian and Liu, IJCAI 2016 (arXiv 1511.05950), equation 6. With `k` workers it is about `k`: so
    the learning rate is that of a step on the joined minibatch.
    """

    whole_steps = False

    def apply(self, local: Local, w: Any, g: Any, missed: int) -> None:
        """Step by lr / `missed`."""
        local.base = self.base.with_(lr=self.base.lr / max(missed, 1))
        local.step(w, g)


@dataclass(frozen=True)
class ElasticAveraging(StaleSynchronous):
    """Workers train on their own, each tied to the centre, rank 0, by a spring.

    Every few steps a worker reads the centre c, and both move by d = alpha (w - c): the worker by
    -d, the centre by +d. The gradient is that at the old w. So d moves the sum of all ranks'
    parameters nowhere. alpha is `moving_rate` over the number of workers. Zhang, Choromanska and
    LeCun, NIPS 2015 (arXiv 1412.6651): with the bound 0 equations 2 and 3, else algorithm 1.

    `bound` is that of `StaleSynchronous`, in rounds: how far a worker may be ahead of the slowest.
    """

    whole_steps = False
    moving_rate: float = 0.75
    every: int = 2

    def train(self, rank: int, size: int, w: Any, gradient: Gradient, steps: int) -> Schedule:
        """Only the workers step. What they train to is the centre."""
        if rank == 0:
            yield from self._serve(size, w, self.rounds(steps))
            return
        local, centre = Local(self.base), np.empty_like(w)
        for step in range(steps):
            g = gradient(step, w)
            if step % self.every:
                local.step(w, g)
                continue
            yield Recv(0, centre)
            force = (w - centre) * self.moving_rate / (size - 1)
            local.step(w, g, at=w - force)
            yield Send(0, force)

    def apply(self, local: Local, w: Any, g: Any, missed: int) -> None:
        """The centre moves by the force, however stale."""
        w += g

    def rounds(self, steps: int) -> int:
        """How often each worker meets the centre."""
        return -(-steps // self.every)


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
