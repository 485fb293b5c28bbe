"""A recipe's task, learned by a distributed optimizer: its first steps, and the whole of it.

The base optimizer, its hyperparameters and the joined minibatch are the recipe's. Where each
gradient makes a whole step, the learning rate is divided by the number of workers.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any, TypeVar

import numpy as np

from d5test.distributed.communicator import Runner
from d5test.distributed.fleet import Fleet, Shares, at_root, shares, spread
from d5test.distributed.optimizer import DistributedOptimizer
from d5test.distributed.optimizers import CONSISTENT
from d5test.numerics.bounds import Bounds
from d5test.numerics.ensemble import MEMBERS, noise
from d5test.numerics.judgement import Judgement, judge
from d5test.reference.optimizers import Optimizer
from d5test.training.curve import ARITHMETIC, Combine, ReferenceRun, spread_of
from d5test.training.datasets import BadFile, Dataset
from d5test.training.history import History
from d5test.training.recipe import BadRecipe, Recipe, Run, finished
from d5test.training.trajectory import ratio

STEPS, JUDGED, JOINED, OWN = 6, 3, 32, 4
"""First steps, losses among them that are compared, and samples of a joined minibatch: what is
affordable for nine references of a convolutional network. Momentum shows in the third loss. With
fewer than `OWN` samples a worker, batch normalisation makes stale gradients too noisy to descend
in so few steps."""
Made = TypeVar("Made")
SUSPECTS: Mapping[str, Combine] = {
    "a sum instead of an average": lambda g: sum(g[1:], g[0]),
    "an average over one rank too few": lambda g: sum(g[1:], g[0]) / max(len(g) - 1, 1),
    "an average over one rank too many": lambda g: sum(g[1:], g[0]) / (len(g) + 1),
    "rank 0's gradient alone": lambda g: g[0],
    "the last rank's gradient left out": lambda g: sum(g[1:-1], g[0]) / len(g),
    "no step at all": lambda g: 0 * g[0],
}
"""What wrong losses may come from, by name."""


class Sequential(ReferenceRun):
    """What the first losses of a consistent optimizer should be."""

    def bounds(self, comm: Runner, size: int) -> Bounds:
        """How far honest arithmetic may stray from the losses; the ranks share the members.

        All ranks have the same bounds, bit for bit.
        """

        def members(rank: int) -> list[list[float]]:
            return [self.losses(noise(ARITHMETIC, m)) for m in range(rank, MEMBERS, size)]

        right = at_root(comm, size, self.losses)
        ordered = chain.from_iterable(zip_longest(*spread(comm, size, members)))
        return spread_of(right, [losses for losses in ordered if losses is not None])

    def suspect(self, losses: Sequence[float], bounds: Bounds) -> str:
        """The mistake that makes these losses, as far as the bars of the right ones tell."""
        for name, combine in SUSPECTS.items():
            likely = zip(self.losses(combine=combine), losses, bounds, strict=True)
            if all(abs(want - got) <= bound.bar for want, got, bound in likely if bound):
                return name
        return ""


@dataclass(frozen=True)
class Task:
    """A recipe and its data, for so many ranks."""

    recipe: Recipe
    dataset: Dataset
    size: int

    @cached_property
    def base(self) -> Optimizer:
        """The recipe's optimizer."""
        return self.recipe.optimizer()

    def optimizer(self, comm: Runner, name: str) -> DistributedOptimizer:
        """The communicator's own distributed optimizer over the recipe's."""
        make = comm.optimizers[name]
        steps = make(self.base).steps_a_round(self.size)
        return make(self.base.with_(lr=self.base.lr / max(steps, 1)))

    def fleet(self, comm: Runner, client: Any, name: str, seed: int) -> Fleet:
        """A replica on each rank, with the initial parameters of a seed."""
        network, optimizer = self.recipe.network(seed), self.optimizer(comm, name)
        return Fleet(comm, client, network, self.dataset.train, optimizer, self.size)

    def first(self, workers: int) -> Shares:
        """What each of so many workers sees in the first steps."""
        joined = max(JOINED, OWN * workers)
        seen = shares(len(self.dataset.train), joined, workers, epochs=1, seed=self.seed)
        return [own[:STEPS] for own in seen]

    @property
    def seed(self) -> int:
        """The first of the recipe's."""
        return int(self.recipe.fixed["seeds"][0])

    def sequential(self) -> Sequential:
        """The base optimizer on the first minibatches of all ranks."""
        seen, batch = self.first(self.size), self.dataset.train.batch
        steps = [[batch(own[step]) for own in seen] for step in range(JUDGED)]
        return Sequential(self.recipe.network(self.seed), self.base, steps)


@dataclass(frozen=True)
class Begun:
    """How a training began. `reason` says what is wrong with it, and is empty if nothing is."""

    judgement: Judgement
    losses: tuple[float, ...]
    before: float
    after: float
    reason: str = ""


def known_to_all(comm: Runner, size: int, make: Callable[[], Made]) -> Made:
    """What rank 0 makes of files or packages, sent to all; what it raises, all raise."""

    def tried() -> Made | Exception:
        try:
            return make()
        except (BadRecipe, BadFile, ImportError) as error:
            return error

    result = at_root(comm, size, tried)
    if isinstance(result, Exception):
        raise result
    return result


def begin(
    comm: Runner, client: Any, task: Task, name: str, sequential: Sequential, bounds: Bounds
) -> Begun:
    """The first steps: the loss falls, and that of consistent optimizers is the sequential one.

    It falls by more than rounding errors explain: the mean of equal replicas is no step.

    `before` and `after` are the mean loss over all minibatches of these steps, of the parameters
    at the start and of those at the end.
    """
    with closing(task.fleet(comm, client, name, task.seed)) as fleet:
        seen = task.first(len(fleet.workers))
        fitted = fleet.train(seen)
        before, after = fleet.loss(fleet.start, seen), fleet.loss(fitted.parameters, seen)
    losses = [float(loss) for loss in fitted.losses.mean(axis=1)]
    begun = Begun(Judgement(telling=True), tuple(losses), before, after)
    if name in CONSISTENT:
        first = losses[:JUDGED]
        arrays = [np.asarray(loss) for loss in first]
        distance = ratio(bounds, arrays)
        judgement = replace(judge(bounds, arrays), ratio=distance, telling=True)
        begun = replace(begun, judgement=judgement)
        if not judgement.right:
            likely = at_root(comm, task.size, lambda: sequential.suspect(first, bounds))
            lines = [
                "the losses are not those of the base optimizer on all ranks' minibatches",
                f"  distance    {distance:.4g} times what is allowed",
                f"  got         {', '.join(f'{loss:.7g}' for loss in first)}",
                f"  want        {', '.join(f'{float(b.value):.7g}' for b in bounds if b)}",
                *([f"  looks like  {likely}"] if likely else []),
            ]
            return replace(begun, reason="\n".join(lines))
    if bounds[0] is not None and not before - after > bounds[0].bar:
        return replace(begun, reason=f"the loss does not fall: {before:.6g}, then {after:.6g}")
    return begun


def train(comm: Runner, client: Any, task: Task, name: str, seed: int) -> Run:
    """The whole task from one seed; tested at the end, since a schedule is not interrupted.

    The time is that of the slowest rank: its own gradients are `compute`, the rest, in which it
    communicates and waits for others, is `transfer`.
    """
    fixed, mutable, samples = task.recipe.fixed, task.recipe.mutable, len(task.dataset.train)
    with closing(task.fleet(comm, client, name, seed)) as fleet:
        workers = len(fleet.workers)
        seen = shares(samples, mutable["batch_size"], workers, fixed["epochs"], seed)
        fitted = fleet.train(seen, order=seed)
        start = time.perf_counter()
        accuracy = fleet.accuracy(fitted.parameters, task.dataset)
        tested = time.perf_counter() - start
    compute = float(fitted.compute.max())
    history = History(losses=[float(loss) for loss in fitted.losses.mean(axis=1)])
    took_part = ~np.ma.getmaskarray(fitted.losses).T
    history.trained = sum(
        len(indices)
        for own, took in zip(seen, took_part, strict=True)
        for indices, part in zip(own, took, strict=True)
        if part
    )
    history.spend("compute", compute)
    history.spend("transfer", fitted.seconds - compute)
    history.spend("evaluation", at_root(comm, task.size, lambda: tested))
    history.test_accuracy.append(accuracy)
    history.tested_at.append(history.elapsed)
    return finished(task.recipe, seed, history)
