"""A recipe's task, learned by a distributed optimizer: its first steps, and the whole of it.

The base optimizer, its hyperparameters and the joined minibatch are the recipe's. Where each
gradient makes a whole step, the learning rate is divided by the number of workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from d5test.case import Array
from d5test.distributed.communicator import Runner
from d5test.distributed.descent import CONSISTENT
from d5test.distributed.fleet import Fleet, Shares, at_root, shares
from d5test.distributed.optimizers import DistributedOptimizer
from d5test.distributed.sequential import Sequential
from d5test.numerics.bounds import Bounds
from d5test.numerics.ensemble import norm_ratio
from d5test.numerics.judgement import Judgement, judge
from d5test.reference.optimizers import Optimizer
from d5test.training.datasets import Dataset
from d5test.training.files import BadFile
from d5test.training.history import History
from d5test.training.recipe import BadRecipe, Recipe, Run, broken, measured

STEPS, JUDGED, JOINED, OWN = 6, 3, 32, 4
"""First steps, losses among them that are compared, and samples of a joined minibatch: what is
affordable for nine references of a convolutional network. Momentum shows in the third loss. With
fewer than `OWN` samples a worker, batch normalisation makes stale gradients too noisy to descend
in so few steps."""
Made = TypeVar("Made")


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


def told(comm: Runner, size: int, make: Callable[[], Made]) -> Made:
    """What rank 0 makes of files or packages, told to all; what it raises, all raise."""

    def tried() -> Any:
        try:
            return make()
        except (BadRecipe, BadFile, ImportError) as error:
            return error

    made: Any = at_root(comm, size, tried)
    if isinstance(made, Exception):
        raise made
    found: Made = made
    return found


def begin(
    comm: Runner, client: Any, task: Task, name: str, sequential: Sequential, bounds: Bounds
) -> Begun:
    """The first steps: the loss falls, and that of consistent optimizers is the sequential one.

    It falls by more than rounding errors explain: the mean of equal replicas is no step.

    `before` and `after` are the mean loss over all minibatches of these steps, of the parameters
    at the start and of those at the end.
    """
    fleet = task.fleet(comm, client, name, task.seed)
    try:
        seen = task.first(len(fleet.workers))
        fitted = fleet.train(seen)
        before, after = fleet.loss(fleet.start, seen), fleet.loss(fitted.parameters, seen)
    finally:
        fleet.close()
    losses = fitted.losses.mean(axis=1)
    found = Begun(Judgement(telling=True), tuple(map(float, losses)), before, after)
    if name in CONSISTENT:
        judgement = _apart(losses[:JUDGED], bounds)
        found = replace(found, judgement=judgement)
        if not judgement.right:
            begun = found.losses[:JUDGED]
            likely = at_root(comm, task.size, lambda: sequential.suspect(begun, bounds))
            return replace(found, reason=_unlike(judgement, bounds, losses, likely))
    (first, *_) = bounds
    if first is not None and not before - after > first.bar:
        return replace(found, reason=f"the loss does not fall: {before:.6g}, then {after:.6g}")
    return found


def _apart(losses: Array, bounds: Bounds) -> Judgement:
    results = [np.asarray(loss) for loss in losses]
    by_norm = max(
        norm_ratio((bound,), (loss,)) for bound, loss in zip(bounds, results, strict=True)
    )
    judgement = judge(bounds, results)
    return replace(judgement, ratio=max(judgement.ratio, by_norm), telling=True)


def _unlike(judgement: Judgement, bounds: Bounds, losses: Array, likely: str) -> str:
    want = ", ".join(f"{float(bound.value):.7g}" for bound in bounds if bound is not None)
    got = ", ".join(f"{loss:.7g}" for loss in losses[: len(bounds)])
    lines = [
        "the losses are not those of the base optimizer on all ranks' minibatches",
        f"  distance    {judgement.ratio:.4g} times what is allowed",
        f"  got         {got}",
        f"  want        {want}",
    ]
    return "\n".join([*lines, *([f"  looks like  {likely}"] if likely else [])])


def train(comm: Runner, client: Any, task: Task, name: str, seed: int) -> Run:
    """The whole task from one seed; tested at the end, since a schedule is not interrupted.

    The time is that of the slowest rank: its own gradients are `compute`, the rest, in which it
    communicates and waits for others, is `transfer`.
    """
    fixed, mutable, samples = task.recipe.fixed, task.recipe.mutable, len(task.dataset.train)
    fleet = task.fleet(comm, client, name, seed)
    try:
        workers = len(fleet.workers)
        seen = shares(samples, mutable["batch_size"], workers, fixed["epochs"], seed)
        fitted = fleet.train(seen, order=seed)
        start = time.perf_counter()
        accuracy = fleet.accuracy(fitted.parameters, task.dataset)
        tested = time.perf_counter() - start
    finally:
        fleet.close()
    compute = float(fitted.compute.max())
    history = History(losses=[float(loss) for loss in fitted.losses.mean(axis=1)])
    history.trained = sum(len(indices) for own in seen for indices in own)
    history.spend("compute", compute)
    history.spend("transfer", fitted.seconds - compute)
    history.spend("evaluation", at_root(comm, task.size, lambda: tested))
    history.test_accuracy.append(accuracy)
    history.tested_at.append(history.elapsed)
    values = measured(task.recipe, history)
    return Run(seed, history, values, tuple(broken(task.recipe, values)))
