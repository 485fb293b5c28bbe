"""Divided networks that are wrong on purpose, each in one way; and one that is right."""

from typing import Any

import numpy as np

from d5test.reference.pipelines import Division, gpipe


class InOrder(Division):
    """Right: GPipe with the first microbatch back first."""

    def passes(self) -> list[tuple[str, int]]:
        each = range(self.plan.microbatches)
        return [(what, i) for what in "FB" for i in each]


class StaleActivations(Division):
    """The backward pass uses the activations of the microbatch that came last: right in GPipe."""

    def stashed(self, i: int) -> tuple[Any, ...]:
        *_, (x, u, _) = self._stash.values()
        return x, u, self._stash[i][2]


class MicrobatchLost(Division):
    """The gradient of the last microbatch is not added."""

    def backward(self, i: int) -> Any:
        da, db = yield from super().backward(i)
        lost = i == self.plan.microbatches - 1
        return (0 * da, 0 * db) if lost else (da, db)


class NotSummedBack(Division):
    """The gradient of a block's input is that of the rank's own columns."""

    back = False

    def backward(self, i: int) -> Any:
        self.back = True
        found = yield from super().backward(i)
        self.back = False
        return found

    def _summed(self, part: Any) -> Any:
        return part if self.back else (yield from super()._summed(part))


class OwnMean(Division):
    """The mean is over the replica's own samples: a sum over the replicas, not a mean."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.total //= self.plan.data


class OneAfterTheOther(Division):
    """A microbatch goes forward when the one before is back: no pipeline."""

    def passes(self) -> list[tuple[str, int]]:
        return [(what, i) for i in range(self.plan.microbatches) for what in "FB"]


class KeepsAll(Division):
    """GPipe's order, whatever is asked for."""

    def passes(self) -> list[tuple[str, int]]:
        _, stage, _ = self.plan.place(self.rank)
        return gpipe(stage, self.plan.stages, self.plan.microbatches)


class SendsFirst(Division):
    """It sends, and then receives: that needs buffers."""

    def _receive(self, stage: int, tag: int) -> Any:
        sends, self._sends = self._sends, []
        yield tuple(sends)
        return (yield from super()._receive(stage, tag))


class SummedTwice(Division):
    """Each block's sums are formed twice."""

    def _summed(self, part: Any) -> Any:
        yield from super()._summed(np.zeros_like(part))
        return (yield from super()._summed(part))


class KeepsAllRows(Division):
    """It keeps the rows that it has gathered, where its own are enough."""

    def forward(self, i: int) -> Any:
        yield from super().forward(i)
        x, u, out = self._stash[i]
        self._stash[i] = (yield from super()._gathered(x)), u, out
        self.kept = max(self.kept, sum(p.size for parts in self._stash.values() for p in parts))

    def _gathered(self, own: Any) -> Any:
        whole = len(own) == sum(self.layout.counts) // self.a.shape[0]
        return own if whole else (yield from super()._gathered(own))


class OwnRowsOfOwnSum(Division):
    """What is scattered is no sum."""

    def _scattered(self, part: Any) -> Any:
        yield from super()._scattered(part)
        return part[self.plan.rows(self.rank, len(part))] if self.plan.sequence else part


class SumsAllRows(Division):
    """Right, but each rank has the sum of all rows, and takes its own."""

    def _scattered(self, part: Any) -> Any:
        summed = yield from self._summed(part)
        return summed[self.plan.rows(self.rank, len(part))]


class NextRows(Division):
    """A rank sends on what is another's: rows come in another order than they left."""

    def _gathered(self, own: Any) -> Any:
        every = yield from super()._gathered(own)
        return np.concatenate([every[1:], every[:1]]) if self.plan.sequence else every
