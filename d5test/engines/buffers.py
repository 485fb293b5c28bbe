"""Running statistics of batch normalisation, as each rank has them, in the sequential run.

What a rank normalises by, and whose statistics it then moves, is what an engine says (`WAYS`).
PyTorch's DDP sends rank 0's to all before a forward pass, and each rank moves them by its own
share: so ranks differ after a step. Of those that may differ, each has a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from d5test.engines.engine import Minibatch
from d5test.engines.models import MOMENTUM
from d5test.engines.training import Training

Buffers = dict[str, torch.Tensor]
"""By their names in the model."""
Move = Callable[[Buffers, Buffers, int], Buffers]
"""What becomes of buffers: of those before a forward pass, those after it, and the number of
samples by which it normalised."""


def moved(before: Buffers, after: Buffers, samples: int) -> Buffers:
    """What is right."""
    return after


def kept(before: Buffers, after: Buffers, samples: int) -> Buffers:
    """They are not moved at all."""
    return before


def moved_twice(before: Buffers, after: Buffers, samples: int) -> Buffers:
    """By the same statistics, as where a forward pass is repeated."""
    return {
        name: x + (x - before[name]) * ((1 - MOMENTUM) if x.is_floating_point() else 1)
        for name, x in after.items()
    }


def biased(before: Buffers, after: Buffers, samples: int) -> Buffers:
    """The variance is divided by the number of samples, not by one less."""

    def smaller(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        variance = x + (y - x) / MOMENTUM
        return x + MOMENTUM * (variance * ((samples - 1) / samples) - x)

    return {
        name: smaller(before[name], x) if name.endswith("running_var") else x
        for name, x in after.items()
    }


@dataclass(frozen=True)
class Way:
    """How ranks come to their statistics.

    joined  whether they normalise by all samples of a minibatch, not by their own share
    first   whether they move rank 0's statistics, not their own
    mean    whether they have the mean of all ranks' after a step
    move    what becomes of them in a forward pass
    """

    joined: bool = False
    first: bool = False
    mean: bool = False
    move: Move = moved


WAYS: Mapping[str, Way] = {"own": Way(), "first": Way(first=True), "joined": Way(joined=True)}
"""What `Engine.statistics` may say."""


def way_of(training: Training) -> Way | None:
    """The right one; `None` of a model without buffers."""
    return WAYS[training.statistics] if training.buffers else None


def mistaken(training: Training) -> Mapping[str, Way]:
    """The usual mistakes, by name."""
    right = way_of(training)
    if right is None:
        return {}
    others = {
        "running statistics are not moved": replace(right, move=kept),
        "running statistics are moved twice in a step": replace(right, move=moved_twice),
        "the running variance is biased": replace(right, move=biased),
        "statistics are those of the joined minibatch": WAYS["joined"],
        "statistics are those of a rank's own share": WAYS["own"],
        "statistics are those of a share, moved from rank 0's": WAYS["first"],
        "statistics are the mean of the shares'": Way(mean=True),
    }
    return {name: way for name, way in others.items() if way != right}


class Statistics:
    """The buffers of all ranks, of which a model has one rank's at a time."""

    def __init__(self, training: Training, way: Way, model: nn.Module) -> None:
        self._training, self._way, self._model = training, way, model
        self._of_ranks = [self._copied()] * training.ranks

    def _copied(self) -> Buffers:
        return {name: b.detach().clone() for name, b in self._model.named_buffers()}

    def outputs(self, batch: Minibatch, rank: int, following: list[Buffers]) -> torch.Tensor:
        """Of a rank's share; what its buffers then are is added to a list."""
        before = self._of_ranks[0 if self._way.first else rank]
        with torch.no_grad():
            for name, b in self._model.named_buffers():
                b.copy_(before[name])
        ranks = self._training.ranks
        given = batch if self._way.joined else batch.part(rank, ranks)
        y: torch.Tensor = self._model(given.x)
        following.append(self._way.move(before, self._copied(), len(given)))
        return torch.tensor_split(y, ranks)[rank] if self._way.joined else y

    def end(self, following: Sequence[Buffers]) -> None:
        """A step is over: these are the ranks' buffers."""
        if self._way.mean:
            names = following[0]
            mean = {n: sum(each[n] for each in following) / len(following) for n in names}
            following = [mean] * len(following)
        self._of_ranks = [*following]

    def named(self) -> Buffers:
        """Those of all ranks, as `Training.buffer` names them."""
        return {
            self._training.buffer(name, rank): b
            for rank, each in enumerate(self._of_ranks)
            for name, b in each.items()
        }
