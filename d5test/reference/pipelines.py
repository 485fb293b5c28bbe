"""Networks divided among ranks: tensor, sequence, pipeline and data parallelism as schedules.

The network is a chain of blocks y = x + tanh(x a) b, `a` of shape (d, h), `b` of shape (h, d). The
loss is the mean of |y - target|^2 / 2 over the samples of the joined minibatch. What each rank
computes is the gradient of what it holds: of its block, its columns of `a` and its rows of `b`.

Ranks are counted along tensor parallelism first, then pipeline stages, then data parallelism.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d5test.reference.collectives import ALLREDUCE, Recv, Schedule, Send, within
from d5test.reference.rootless import ring_allgather, ring_reduce_scatter
from d5test.reference.semantics import Layout

Order = Callable[[int, int, int], list[tuple[str, int]]]
"""(stage, stages, microbatches) -> what a stage does: ("F", i) or ("B", i), in order."""


def gpipe(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """All forward, then all backward, the last first. Huang et al., NeurIPS 2019, section 2.3."""
    each = range(microbatches)
    return [("F", i) for i in each] + [("B", i) for i in reversed(each)]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """As soon as a microbatch is back, another goes forward: 1F1B.

    Narayanan et al., SOSP 2019 (PipeDream), with a flush: SC 2021 (arXiv 2104.04473), section 2.2.
    """
    ahead = min(stages - stage - 1, microbatches)
    order = [("F", i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        order += [("F", ahead + i), ("B", i)]
    return order + [("B", i) for i in range(microbatches - ahead, microbatches)]


ORDERS: Mapping[str, Order] = {"gpipe": gpipe, "1f1b": one_forward_one_backward}
"""By name."""


@dataclass(frozen=True)
class Plan:
    """How a network of `stages` blocks is divided among `size` ranks.

    tensor        ranks that share a block: columns of `a`, rows of `b` (Shoeybi et al., arXiv
                  1909.08053, section 3)
    stages        ranks in a pipeline, one block each
    data          replicas, each with its part of the minibatch
    microbatches  into which a replica's minibatch is cut
    sequence      whether the ranks that share a block also divide what goes from block to block:
                  each has some rows of every microbatch. Korthikanti et al., MLSys 2023 (arXiv
                  2205.05198), section 4.2.2
    """

    tensor: int = 1
    stages: int = 1
    data: int = 1
    microbatches: int = 1
    order: str = "gpipe"
    sequence: bool = False

    @property
    def size(self) -> int:
        """Ranks."""
        return self.tensor * self.stages * self.data

    def place(self, rank: int) -> tuple[int, int, int]:
        """(tensor, stage, data) of a rank."""
        rest, tensor = divmod(rank, self.tensor)
        data, stage = divmod(rest, self.stages)
        return tensor, stage, data

    def rank(self, tensor: int, stage: int, data: int) -> int:
        """The rank at a place."""
        return (data * self.stages + stage) * self.tensor + tensor

    def bubble(self) -> float:
        """The share of a stage's time in which it waits, if forward takes as long as backward."""
        return (self.stages - 1) / (self.microbatches + self.stages - 1)

    def kept(self, stage: int) -> int:
        """The most microbatches whose activations a stage has to keep at once."""
        ahead = self.stages - stage
        return self.microbatches if self.order == "gpipe" else min(ahead, self.microbatches)

    def columns(self, rank: int, h: int) -> slice:
        """The columns of `a`, and the rows of `b`, that a rank holds."""
        ends = np.cumsum([0, *(len(c) for c in np.array_split(np.arange(h), self.tensor))])
        tensor, *_ = self.place(rank)
        return slice(int(ends[tensor]), int(ends[tensor + 1]))

    def rows(self, rank: int, count: int) -> slice:
        """The samples of a microbatch that a rank has between blocks."""
        if not self.sequence:
            return slice(0, count)
        tensor, *_ = self.place(rank)
        return slice(count * tensor // self.tensor, count * (tensor + 1) // self.tensor)

    def samples(self, rank: int, count: int) -> list[slice]:
        """Those samples, of each microbatch of a rank's replica, of `count` samples each."""
        *_, data = self.place(rank)
        rows, first = self.rows(rank, count), data * self.microbatches
        starts = [(first + i) * count for i in range(self.microbatches)]
        return [slice(start + rows.start, start + rows.stop) for start in starts]

    def kept_items(self, rank: int, d: int, h: int, count: int) -> int:
        """Items of the activations that a rank keeps at most: x, tanh(x a) and y of its block."""
        _, stage, _ = self.place(rank)
        rows, columns = self.rows(rank, count), self.columns(rank, h)
        one: int = 2 * (rows.stop - rows.start) * d + count * (columns.stop - columns.start)
        return self.kept(stage) * one

    def items(self, d: int, h: int, count: int) -> int:
        """Items that all ranks send: activations and a clock, their gradients, two sums a block.

        The sums are over the ranks that share a block; at the end one over the replicas. Where
        rows are divided, each sum is scattered, and x is gathered forward, it and the gradient of
        y backward: five times all rows to each other rank, in the place of four.
        """
        rows: int = sum((r.stop - r.start) * d + 1 for r in self.all_rows(count))
        between = 2 * self.microbatches * rows * (self.stages - 1)
        sums = 2 * SUM.items(self.tensor, count * d)
        if self.sequence:
            sums = 5 * (self.tensor - 1) * count * d
        in_block = self.microbatches * sums * self.stages
        shares = [self.columns(tensor, h) for tensor in range(self.tensor)]
        sizes = [2 * d * (share.stop - share.start) for share in shares]
        of_data = self.stages * sum(SUM.items(self.data, n) for n in sizes)
        return self.data * (between + in_block) + of_data

    def all_rows(self, count: int) -> list[slice]:
        """Of each rank that shares a block."""
        return [self.rows(tensor, count) for tensor in range(self.tensor)]


SUM = ALLREDUCE["ring"]
"""How ranks add up."""


@dataclass
class Division:
    """One rank at work: its part of one step.

    a, b     its columns (d, h / tensor) and rows (h / tensor, d) of its block
    x        (microbatches, rows, d): inputs, which only the first stage reads
    targets  as `x`: only the last stage reads them
    total    samples of the joined minibatch

    A virtual clock ticks once for each forward and each backward pass of a microbatch; a message
    carries the time at which it was ready. `kept` is the most items of activations that were there
    at once.
    """

    plan: Plan
    rank: int
    a: Any
    b: Any
    x: Any
    targets: Any
    total: int
    kept: int = 0
    clock: Any = field(init=False)
    layout: Layout = field(init=False)
    _stash: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _sends: list[Send] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = np.zeros_like(np.ravel(self.a)[:1])
        count = self.total // (self.plan.data * self.plan.microbatches)
        rows = self.plan.all_rows(count)
        d = self.a.shape[0]
        self.layout = Layout(self.plan.tensor, tuple((r.stop - r.start) * d for r in rows))

    def step(self, y: Any) -> Schedule:
        """`y`: the gradients of `a` and of `b`, flat, then the clock and `kept`."""
        tensor, stage, data = self.plan.place(self.rank)
        da, db = np.zeros_like(self.a), np.zeros_like(self.b)
        for what, i in self.passes():
            if what == "F":
                yield from self.forward(i)
            else:
                one_a, one_b = yield from self.backward(i)
                da, db = da + one_a, db + one_b
        yield tuple(self._sends)
        n = da.size
        y[:n], y[n:-2] = np.ravel(da), np.ravel(db)
        replicas = [self.plan.rank(tensor, stage, k) for k in range(self.plan.data)]
        if len(replicas) > 1:
            yield from within(SUM.schedule(data, len(replicas), y[:-2]), replicas)
        y[-2:-1], y[-1:] = self.clock, self.kept

    def passes(self) -> list[tuple[str, int]]:
        """What this stage does, in order."""
        _, stage, _ = self.plan.place(self.rank)
        return ORDERS[self.plan.order](stage, self.plan.stages, self.plan.microbatches)

    def forward(self, i: int) -> Schedule:
        """Microbatch `i` through the block, and on to the next stage."""
        _, stage, _ = self.plan.place(self.rank)
        x = self.x[i]
        if stage > 0:
            x = yield from self._receive(stage - 1, 0)
        self.clock = self.clock + 1
        u = np.tanh((yield from self._gathered(x)) @ self.a)
        out = x + (yield from self._scattered(u @ self.b))
        self._stash[i] = x, u, out
        held = sum(part.size for parts in self._stash.values() for part in parts)
        self.kept = max(self.kept, held)
        if stage < self.plan.stages - 1:
            self._post(stage + 1, out, 0)

    def backward(self, i: int) -> Any:
        """Microbatch `i` back; the gradients of `a` and `b` that it gives."""
        _, stage, _ = self.plan.place(self.rank)
        if stage == self.plan.stages - 1:
            *_, out = self.stashed(i)
            dy = (out - self.targets[i]) / self.total
        else:
            dy = yield from self._receive(stage + 1, 1)
        x, u, _ = self.stashed(i)
        del self._stash[i]
        self.clock = self.clock + 1
        every_x, every_dy = (yield from self._gathered(x)), (yield from self._gathered(dy))
        dv = every_dy @ np.transpose(self.b) * (1 - u * u)
        dx = dy + (yield from self._scattered(dv @ np.transpose(self.a)))
        if stage > 0:
            self._post(stage - 1, dx, 1)
        return np.transpose(every_x) @ dv, np.transpose(u) @ every_dy

    def stashed(self, i: int) -> tuple[Any, ...]:
        """The activations of microbatch `i`: x, tanh(x a), y."""
        return self._stash[i]

    def _members(self) -> list[int]:
        """The ranks that share the block."""
        _, stage, data = self.plan.place(self.rank)
        return [self.plan.rank(k, stage, data) for k in range(self.plan.tensor)]

    def _summed(self, part: Any) -> Any:
        """The sum over the ranks that share the block."""
        members = self._members()
        if len(members) == 1:
            return part
        flat = np.ravel(part).copy()
        yield from within(SUM.schedule(self._tensor, len(members), flat), members)
        return flat.reshape(part.shape)

    def _gathered(self, own: Any) -> Any:
        """All rows of a microbatch, of which each rank that shares the block has some."""
        if not self.plan.sequence:
            return own
        every = np.empty_like(self.a, shape=sum(self.layout.counts))
        gather = ring_allgather(self._tensor, self.layout, np.ravel(own).copy(), every)
        yield from within(gather, self._members())
        return every.reshape(-1, own.shape[1])

    def _scattered(self, part: Any) -> Any:
        """This rank's rows of the sum over the ranks that share the block."""
        if not self.plan.sequence:
            return (yield from self._summed(part))
        own = np.empty_like(self.a, shape=self.layout.counts[self._tensor])
        scatter = ring_reduce_scatter(self._tensor, self.layout, np.ravel(part).copy(), own)
        yield from within(scatter, self._members())
        return own.reshape(-1, part.shape[1])

    @property
    def _tensor(self) -> int:
        """The place of this rank among those."""
        tensor, *_ = self.plan.place(self.rank)
        return tensor

    def _post(self, stage: int, x: Any, tag: int) -> None:
        """Send it while the next message is received: nothing is buffered."""
        message = np.empty_like(self._room())
        message[:-1], message[-1:] = np.ravel(x), self.clock
        self._sends.append(Send(self._beside(stage), message, tag))

    def _receive(self, stage: int, tag: int) -> Any:
        room = self._room()
        sends, self._sends = self._sends, []
        yield (*sends, Recv(self._beside(stage), room, tag))
        self.clock = np.maximum(self.clock, room[-1:])
        return room[:-1].reshape(self.x[0].shape)

    def _beside(self, stage: int) -> int:
        tensor, _, data = self.plan.place(self.rank)
        return self.plan.rank(tensor, stage, data)

    def _room(self) -> Any:
        return np.empty_like(self.a, shape=self.x[0].size + 1)


def undivided(a: Any, b: Any, x: Any, targets: Any) -> tuple[Any, Any]:
    """The gradients of `a` (stages, d, h) and `b` (stages, h, d) for all samples, on one rank."""
    inputs, hidden = [x], []
    for one_a, one_b in zip(a, b, strict=True):
        hidden.append(np.tanh(inputs[-1] @ one_a))
        inputs.append(inputs[-1] + hidden[-1] @ one_b)
    dy, da, db = (inputs[-1] - targets) / len(x), np.zeros_like(a), np.zeros_like(b)
    for k in reversed(range(len(a))):
        db[k] = hidden[k].T @ dy
        dv = dy @ b[k].T * (1 - hidden[k] ** 2)
        da[k] = inputs[k].T @ dv
        dy = dy + dv @ a[k].T
    return da, db
