"""The first losses of a training run, against an ensemble of noisy references.

From the same initial parameters and the same batches every framework goes the same way, as far as
rounding lets it: the loss after each step is judged by the spread of references whose every
primitive, forward, backward and in the optimizer, has one rounding error. The longer the run, the
wider the spread; for some twenty steps it tells a learning rate of 0.1001 from 0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array
from d5test.networks.graph import Graph
from d5test.networks.network import Network
from d5test.networks.reference import Pass, upstream_of
from d5test.networks.specialise import specialised
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import Bounds
from d5test.numerics.ensemble import MEMBERS, Spread, noise, norm_ratio
from d5test.numerics.judgement import judge
from d5test.reference.optimizers import Momentum, Optimizer
from d5test.reference.steps import as_step
from d5test.training.datasets import Dataset, digits
from d5test.training.recipe import Recipe
from d5test.training.samplers import ShuffleSampler
from d5test.training.session import Session
from d5test.training.statistics import learned
from d5test.training.trajectory import Distance, Plain

Batch = Mapping[str, Array]
BATCH, STEPS = 16, 20
"""What is affordable for nine references of a convolutional network."""
PAUSE = 8
"""Steps after which a run is interrupted: the state is in full swing, and the rest shows it."""
USUAL = Momentum(lr=0.1)
"""What the perceptron is trained with."""


@dataclass(frozen=True)
class Curve:
    """What is expected of the losses of a network's first steps, one on each of `batches`."""

    network: Network
    optimizer: Optimizer
    batches: tuple[Batch, ...]
    bounds: Bounds

    @property
    def name(self) -> str:
        """The network's."""
        return self.network.name

    def distance(self, client: Any, kind: str = "native", pause: int | None = None) -> Distance:
        """How far the losses on a backend are from what is expected, after each step.

        With a `pause` the run goes on after so many steps in another session, from what this one
        left: parameters, slots and the number of steps.
        """
        session = Session(client, self.network, self.optimizer, kind)
        try:
            passed = session.train(self.batches[:pause])
            if pause is not None:
                left = session.snapshot()
                session.close()
                session.restore(left, like=self.batches[pause])
                passed += session.train(self.batches[pause:])
        finally:
            session.close()
        return self.judged([p.loss for p in passed])

    def judged(self, losses: Sequence[float]) -> Distance:
        """How far these losses are, in units of what is allowed."""
        ratios = []
        for bound, loss in zip(self.bounds, losses, strict=True):
            one = (bound,), (np.asarray(loss),)
            ratios.append(max(judge(*one).ratio, norm_ratio(*one)))
        return Distance(tuple(ratios))


@dataclass(frozen=True)
class NoCurve:
    """In place of a curve whose data cannot be had, for the reason `why`."""

    why: str
    name: str = "first losses"
    optimizer: Optimizer = USUAL

    def distance(self, client: Any, kind: str = "native", pause: int | None = None) -> Distance:
        """Raises `Unsupported`."""
        raise Unsupported(self.why)


def in_words(found: Distance) -> dict[str, str]:
    """A distance that is too large."""
    return {
        "leaves": f"from step {found.leaves} on",
        "distance": ", ".join(f"{ratio:.3g}" for ratio in found.ratios) + ", by step",
    }


def expected(
    network: Network, optimizer: Optimizer, batches: Sequence[Batch], dtype: str = "float32"
) -> Curve:
    """The losses of the references, and how far honest arithmetic of `dtype` may stray."""
    (arithmetic,) = classes(dtype)
    shapes = {name: x.shape for name, x in batches[0].items()}
    graph = specialised(network.graph, shapes)
    rule = rounded(optimizer, dtype)
    spreads = [Spread(loss) for loss in losses(graph, rule, batches, lambda x: x)]
    for seed in range(MEMBERS):
        member = losses(graph, rule, batches, noise(arithmetic, seed))
        for spread, loss in zip(spreads, member, strict=True):
            spread.add(loss)
    bounds = tuple(spread.bound(arithmetic) for spread in spreads)
    return Curve(network, optimizer, tuple(batches), bounds)


def rounded(optimizer: Optimizer, dtype: str) -> Optimizer:
    """With hyperparameters of `dtype`, as every framework has them where they meet a tensor."""
    numbers = {name: x for name, x in vars(optimizer).items() if isinstance(x, float)}
    return optimizer.with_(**{name: float(np.dtype(dtype).type(x)) for name, x in numbers.items()})


def losses(
    graph: Graph, optimizer: Optimizer, batches: Sequence[Batch], lift: Callable[[Array], Any]
) -> list[Any]:
    """The loss before each step, on arrays that `lift` makes of the network's own."""
    names = learned(graph)
    start = {name: lift(graph.parameters[name].astype(np.float64)) for name in names}
    rule = as_step(optimizer).optimizer(like=start[names[0]])
    at_work, found = Plain(rule, start), []
    for batch in batches:
        passed = Pass(graph, batch, lift)
        passed.values |= at_work.parameters
        for _ in passed.forward():
            continue
        loss = passed.values["loss"]
        found.append(getattr(loss, "value", loss))
        grads = passed.backward(upstream_of("loss", passed.values))
        at_work.step({name: grads[name] for name in names})
    return found


def perceptron() -> Curve:
    """A perceptron on the digits. Raises `d5test.training.datasets.NoPackage`."""
    from d5test.networks.zoo.mlp import mlp

    return expected(mlp((64, 32, 10)), USUAL, first_batches(digits(), 64))


def of_recipe(recipe: Recipe) -> Curve:
    """The network, the optimizer and the data of a recipe, in batches of `BATCH`."""
    network = recipe.network(recipe.fixed["seeds"][0])
    return expected(network, recipe.optimizer(), first_batches(recipe.dataset(), BATCH))


def first_batches(dataset: Dataset, size: int) -> list[Batch]:
    """The first `STEPS` batches of a shuffled epoch."""
    order = ShuffleSampler(len(dataset.train), size, seed=1).epoch(0)[:STEPS]
    return [dataset.train.batch(indices) for indices in order]
