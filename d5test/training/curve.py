"""The first losses of a training run, against an ensemble of noisy references.

From the same initial parameters and the same batches every framework goes the same way, as far as
rounding lets it: the loss after each step is judged by the spread of references whose every
primitive, forward, backward and in the optimizer, has one rounding error. The longer the run, the
wider the spread; for some twenty steps it tells a learning rate of 0.1001 from 0.1.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.networks.graph import Graph
from d5test.networks.network import Network
from d5test.networks.passes import Pass
from d5test.networks.specialise import specialised
from d5test.networks.zoo.small import mlp
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import Bounds
from d5test.numerics.ensemble import MEMBERS, Spread, noise
from d5test.reference.optimizers import Momentum, Optimizer
from d5test.reference.steps import as_step
from d5test.training.datasets import Dataset, digits
from d5test.training.recipe import Recipe
from d5test.training.samplers import ShuffleSampler
from d5test.training.session import Batch, Session, learned
from d5test.training.trajectory import Distance, Plain, ratio

Combine = Callable[[Sequence[Any]], Any]
"""What is made of the ranks' gradients of one parameter."""
(ARITHMETIC,) = classes("float32")
BATCH, STEPS = 16, 20
"""What is affordable for nine references of a convolutional network."""
PAUSE = 8
"""Steps after which a run is interrupted: the state is in full swing, and the rest shows it."""
USUAL = Momentum(lr=0.1)
"""What the perceptron is trained with."""


def mean(gradients: Sequence[Any]) -> Any:
    """Over the ranks; that of one is the gradient itself, which no division rounds."""
    total = sum(gradients[1:], gradients[0])
    return total / len(gradients) if len(gradients) > 1 else total


@dataclass(frozen=True)
class ReferenceRun:
    """The base optimizer on the mean of all ranks' gradients, by the references.

    That is the step on the joined minibatch, but for batch normalisation, whose statistics are
    each rank's own.

    steps  of each step the minibatches of all ranks, which have one shape
    """

    network: Network
    optimizer: Optimizer
    steps: Sequence[Sequence[Batch]]

    @cached_property
    def graph(self) -> Graph:
        """For minibatches of their shape."""
        shapes = {name: x.shape for name, x in self.steps[0][0].items()}
        return specialised(self.network.graph, shapes)

    def losses(
        self, lift: Callable[[Any], Any] = lambda x: x, combine: Combine = mean
    ) -> list[float]:
        """The mean loss of the ranks' minibatches before each step.

        Arrays are what `lift` makes of the network's own; hyperparameters are those of the dtype,
        as every framework has them where they meet a tensor.
        """
        names = learned(self.graph)
        parameters = self.graph.parameters
        start = {name: lift(parameters[name].astype(np.float64)) for name in names}
        numbers = {name: x for name, x in vars(self.optimizer).items() if isinstance(x, float)}
        singles = {name: float(np.float32(x)) for name, x in numbers.items()}
        rule = as_step(self.optimizer.with_(**singles)).optimizer(like=start[names[0]])
        at_work, means = Plain(rule, start), []
        for batches in self.steps:
            values, grads = [], []
            for batch in batches:
                rank = Pass(self.graph, batch, lambda x, dtype: lift(x))
                rank.values |= at_work.parameters
                rank.forward()
                values.append(rank.values["loss"])
                grads.append(rank.backward("loss"))
            means.append(float(np.mean([getattr(loss, "value", loss) for loss in values])))
            at_work.step({name: combine([g[name] for g in grads]) for name in names})
        return means


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
        with closing(Session(client, self.network, self.optimizer, kind)) as session:
            passed = session.train(self.batches[:pause])
            if pause is not None:
                left = session.snapshot()
                session.close()
                session.restore(left, like=self.batches[pause])
                passed += session.train(self.batches[pause:])
        losses = zip(self.bounds, [np.asarray(p.loss) for p in passed], strict=True)
        return Distance(tuple(ratio((bound,), (loss,)) for bound, loss in losses))


@dataclass(frozen=True)
class NoCurve:
    """In place of a curve whose data cannot be had, for the reason `why`."""

    why: str
    name: str = "first losses"
    optimizer: Optimizer = USUAL

    def distance(self, client: Any, kind: str = "native", pause: int | None = None) -> Distance:
        """Raises `Unsupported`."""
        raise Unsupported(self.why)


def in_words(distance: Distance) -> dict[str, str]:
    """A distance that is too large."""
    return {
        "leaves": f"from step {distance.leaves} on",
        "distance": ", ".join(f"{ratio:.3g}" for ratio in distance.ratios) + ", by step",
    }


def expected(network: Network, optimizer: Optimizer, batches: Sequence[Batch]) -> Curve:
    """The losses of the references, and how far honest arithmetic may stray from them."""
    run = ReferenceRun(network, optimizer, [[batch] for batch in batches])
    bounds = spread_of(run.losses(), (run.losses(noise(ARITHMETIC, i)) for i in range(MEMBERS)))
    return Curve(network, optimizer, tuple(batches), bounds)


def spread_of(right: Sequence[float], members: Iterable[Sequence[float]]) -> Bounds:
    """How far the losses of an ensemble stray from the right ones."""
    spreads = [Spread(loss) for loss in right]
    for member in members:
        for spread, loss in zip(spreads, member, strict=True):
            spread.add(loss)
    return tuple(spread.bound(ARITHMETIC) for spread in spreads)


def perceptron() -> Curve:
    """A perceptron on the digits. Raises `d5test.training.datasets.NoPackage`."""
    return expected(mlp((64, 32, 10)), USUAL, first_batches(digits(), 64))


def of_recipe(recipe: Recipe) -> Curve:
    """The network, the optimizer and the data of a recipe, in batches of `BATCH`."""
    network = recipe.network(recipe.fixed["seeds"][0])
    return expected(network, recipe.optimizer(), first_batches(recipe.dataset(), BATCH))


def first_batches(dataset: Dataset, size: int) -> list[Batch]:
    """The first `STEPS` batches of a shuffled epoch."""
    order = ShuffleSampler(len(dataset.train), size, seed=1).epoch(0)[:STEPS]
    return [dataset.train.batch(indices) for indices in order]
