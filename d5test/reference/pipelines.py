"""Networks divided among ranks: tensor, pipeline and data parallelism as schedules.

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
    """

    tensor: int = 1
    stages: int = 1
    data: int = 1
    microbatches: int = 1
    order: str = "gpipe"

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

    def samples(self, rank: int, count: int) -> list[slice]:
        """The microbatches of a rank's replica, of `count` samples each."""
        *_, data = self.place(rank)
        first = data * self.microbatches * count
        return [
            slice(first + i * count, first + (i + 1) * count) for i in range(self.microbatches)
        ]

    def items(self, d: int, h: int, count: int) -> int:
        """Items that all ranks send: activations and a clock, their gradients, two sums a block.

        The sums are over the ranks that share a block; at the end one over the replicas.
        """
        between = 2 * self.microbatches * (count * d + 1) * (self.stages - 1)
        in_block = 2 * self.microbatches * SUM.items(self.tensor, count * d) * self.stages
        shares = [self.columns(tensor, h) for tensor in range(self.tensor)]
        sizes = [2 * d * (share.stop - share.start) for share in shares]
        of_data = self.stages * sum(SUM.items(self.data, n) for n in sizes)
        return self.data * (self.tensor * between + in_block) + of_data


SUM = ALLREDUCE["ring"]
"""How ranks add up."""


@dataclass
class Division:
    """One rank at work: its part of one step.

    a, b     its columns (d, h / tensor) and rows (h / tensor, d) of its block
    x        (microbatches, count, d): inputs, which only the first stage reads
    targets  as `x`: only the last stage reads them
    total    samples of the joined minibatch

    A virtual clock ticks once for each forward and each backward pass of a microbatch; a message
    carries the time at which it was ready. `kept` is the most microbatches whose activations were
    there at once.
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
    _stash: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _sends: list[Send] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = np.zeros_like(np.ravel(self.x[0])[:1])

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
        u = np.tanh(x @ self.a)
        out = x + (yield from self._summed(u @ self.b))
        self._stash[i] = x, u, out
        self.kept = max(self.kept, len(self._stash))
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
        dv = dy @ np.transpose(self.b) * (1 - u * u)
        dx = dy + (yield from self._summed(dv @ np.transpose(self.a)))
        if stage > 0:
            self._post(stage - 1, dx, 1)
        return np.transpose(x) @ dv, np.transpose(u) @ dy

    def stashed(self, i: int) -> tuple[Any, ...]:
        """The activations of microbatch `i`: x, tanh(x a), y."""
        return self._stash[i]

    def _summed(self, part: Any) -> Any:
        """The sum over the ranks that share the block."""
        tensor, stage, data = self.plan.place(self.rank)
        members = [self.plan.rank(k, stage, data) for k in range(self.plan.tensor)]
        if len(members) == 1:
            return part
        flat = np.ravel(part).copy()
        yield from within(SUM.schedule(tensor, len(members), flat), members)
        return flat.reshape(part.shape)

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
        return np.concatenate([np.ravel(self.x[0]), np.ravel(self.x[0])[:1]])


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
