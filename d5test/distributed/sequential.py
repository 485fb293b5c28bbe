"""The first losses of a training on many ranks, against an ensemble of noisy references.

As `d5test.training.curve`, for the base optimizer on the mean of all ranks' gradients. That is the
step on the joined minibatch, but for batch normalisation, whose statistics are each rank's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from d5test.case import Array
from d5test.distributed.communicator import Runner
from d5test.distributed.fleet import at_root, spread
from d5test.networks.graph import Graph
from d5test.networks.network import Network
from d5test.networks.reference import Lift, Pass, upstream_of
from d5test.networks.specialise import specialised
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import Bounds
from d5test.numerics.ensemble import MEMBERS, Spread, noise
from d5test.reference.optimizers import Optimizer
from d5test.reference.steps import as_step
from d5test.training.curve import rounded
from d5test.training.statistics import learned
from d5test.training.trajectory import Plain

Batch = Mapping[str, Array]
Combine = Callable[[Sequence[Any]], Any]
"""What is made of the ranks' gradients of one parameter."""

SUSPECTS: Mapping[str, Combine] = MappingProxyType(
    {
        "a sum instead of an average": lambda g: sum(g[1:], g[0]),
        "an average over one rank too few": lambda g: sum(g[1:], g[0]) / max(len(g) - 1, 1),
        "an average over one rank too many": lambda g: sum(g[1:], g[0]) / (len(g) + 1),
        "rank 0's gradient alone": lambda g: g[0],
        "the last rank's gradient left out": lambda g: sum(g[1:-1], g[0]) / len(g),
        "no step at all": lambda g: 0 * g[0],
    }
)
"""What wrong losses may come from, by name."""


def mean(gradients: Sequence[Any]) -> Any:
    """Over the ranks."""
    return sum(gradients[1:], gradients[0]) / len(gradients)


class Sequential:
    """The base optimizer on all ranks' minibatches of each step, one rank's after the other.

    steps  of each step the minibatches of all ranks, which have one shape
    """

    def __init__(
        self,
        network: Network,
        optimizer: Optimizer,
        steps: Sequence[Sequence[Batch]],
        dtype: str = "float32",
    ) -> None:
        shapes = {name: x.shape for name, x in steps[0][0].items()}
        self.graph: Graph = specialised(network.graph, shapes)
        self.optimizer, self.steps = rounded(optimizer, dtype), steps
        (self.arithmetic,) = classes(dtype)

    def losses(self, lift: Lift = lambda x: x, combine: Combine = mean) -> list[float]:
        """The mean loss of the ranks' minibatches before each step."""
        names = learned(self.graph)
        start = {name: lift(self.graph.parameters[name].astype(np.float64)) for name in names}
        rule = as_step(self.optimizer).optimizer(like=start[names[0]])
        at_work, found = Plain(rule, start), []
        for batches in self.steps:
            passed = [self._passed(batch, at_work.parameters, lift) for batch in batches]
            found.append(float(np.mean([loss for loss, _ in passed])))
            at_work.step({name: combine([grads[name] for _, grads in passed]) for name in names})
        return found

    def _passed(
        self, batch: Batch, parameters: Mapping[str, Any], lift: Lift
    ) -> tuple[float, dict[str, Any]]:
        passed = Pass(self.graph, batch, lift)
        passed.values |= parameters
        for _ in passed.forward():
            continue
        loss = passed.values["loss"]
        grads = passed.backward(upstream_of("loss", passed.values))
        return float(getattr(loss, "value", loss)), grads

    def bounds(self, comm: Runner, size: int) -> Bounds:
        """How far honest arithmetic may stray from the losses; the ranks share the members.

        All ranks have the same bounds, bit for bit.
        """

        def members(rank: int) -> list[list[float]]:
            return [self.losses(noise(self.arithmetic, m)) for m in range(rank, MEMBERS, size)]

        right = at_root(comm, size, self.losses)
        every = [member for own in spread(comm, size, members) for member in own]
        spreads = [Spread(np.float64(loss)) for loss in right]
        for member in every:
            for one, loss in zip(spreads, member, strict=True):
                one.add(np.float64(loss))
        return tuple(one.bound(self.arithmetic) for one in spreads)

    def suspect(self, losses: Sequence[float], bounds: Bounds) -> str:
        """The mistake that makes these losses, as far as the bars of the right ones tell."""
        for name, combine in SUSPECTS.items():
            made = self.losses(combine=combine)
            told = zip(made, losses, bounds, strict=True)
            if all(abs(want - got) <= bound.bar for want, got, bound in told if bound):
                return name
        return ""
