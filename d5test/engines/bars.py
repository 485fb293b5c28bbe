"""How far an honest engine may be from the run on one process.

The bars are the spread of an ensemble of sequential runs with a rounding error at each primitive:
a loss, a norm or a parameter is wrong that is further away than `BY_ELEMENT` spreads, or by norm
`BY_NORM`. A spread is known from `MEMBERS` runs: of a number alone, which shares its variance with
no other, half of them (see `ensemble.Spread`) are 16 spreads off with a probability of 3e-11, by
Student's distribution.

A case counts only if these bars reject, by the parameters alone, every one of the mistakes that
`sequential.mistakes` has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat, zip_longest
from typing import Any

import numpy as np

from d5test.case import Array
from d5test.engines.sequential import (
    COARSE,
    LOSS,
    NORM,
    Noise,
    Trajectory,
    arithmetic_of,
    followed,
    mistakes,
)
from d5test.engines.training import Training
from d5test.numerics.bounds import Bound
from d5test.numerics.ensemble import Spread
from d5test.training.trajectory import ratio

Steps = Iterable[Mapping[str, Array]]
"""Of a run, as in a `Trajectory`."""
MEMBERS = 16
"""Twice as many as elsewhere: losses and norms are single numbers."""


class Alone:
    """The communicator of one rank, which does the work of all."""

    rank, size = 0, 1

    def allgather(self, value: Any) -> list[Any]:
        """What there is."""
        return [value]

    def bcast(self, value: Any) -> Any:
        """The same."""
        return value


@dataclass(frozen=True)
class Bars:
    """How far an honest engine may be from the sequential run."""

    training: Training
    bounds: tuple[dict[str, Bound], ...]
    rounding: str = ""

    def distances(self, run: Steps, around: Steps | None = None) -> Iterator[dict[str, float]]:
        """After each step, by name, in units of what is allowed; perhaps from another run."""
        for bounds, values, others in zip(self.bounds, run, around or repeat({}), strict=False):
            of_step = {}
            for name, value in values.items():
                bound = bounds[name]
                if others:
                    bound = replace(bound, value=others[name])
                of_step[name] = ratio((bound,), (value,))
            yield of_step

    def takes_for_right(self, mistake: str) -> bool:
        """Whether these bars do not reject the parameters to which a mistake leads."""
        wrong = mistakes(self.training)[mistake]()
        return not _apart(self.distances(_parameters(wrong)))

    def blind(self, comm: Any) -> tuple[str, ...]:
        """The mistakes that these bars take for right; each rank looks at some of them.

        Where gradients may be rounded, that is none.
        """
        coarse = self.rounding or self.training.computes
        names = [name for name in mistakes(self.training) if not (coarse and name == COARSE)]
        mine = [name for name in names[comm.rank :: comm.size] if self.takes_for_right(name)]
        return tuple(chain.from_iterable(comm.allgather(mine)))

    def looks_like(self, trajectory: Trajectory) -> str:
        """The mistake that leads to the parameters of these first steps; empty if none does.

        What has not led anywhere yet looks like nothing: the parameters are right so far.
        """
        for name, run in mistakes(self.training).items():
            wrong = [*islice(run(), len(trajectory))]
            if _apart(self.distances(_parameters(trajectory), wrong)):
                continue
            if _apart(self.distances(_parameters(wrong))):
                return name
        return ""


def _parameters(run: Steps) -> Steps:
    return (
        {name: value for name, value in step.items() if name not in (LOSS, NORM)} for step in run
    )


def _apart(distances: Iterator[dict[str, float]]) -> bool:
    """Whether a run leaves the one that the distances are from. The steps after are not made."""
    return any(not distance <= 1 for step in distances for distance in step.values())


def expected(training: Training, rounding: str, comm: Any, plain: Bars | None = None) -> Bars:
    """The bars; the ranks share the members of the ensemble, and all have the same bars.

    The rounding of gradients on their way is independent of all other errors, so that its variance
    and theirs add up. Where the passes are in a narrow format, one ensemble has both.

    plain  those of the same training where nothing is rounded on its way, if they are known
    """
    noise = Noise(arithmetic_of(training.dtype), computes=training.computes)
    if training.computes:
        return Bars(training, _around(training, replace(noise, rounding=rounding), comm), rounding)
    bounds = plain.bounds if plain else _around(training, noise, comm)
    if rounding:
        apart = _around(training, replace(noise, rounding=rounding, alone=True), comm)
        bounds = tuple(
            {name: replace(b, bar=np.hypot(b.bar, of_step[name].bar)) for name, b in step.items()}
            for step, of_step in zip(bounds, apart, strict=True)
        )
    return Bars(training, bounds, rounding)


def _around(training: Training, noise: Noise, comm: Any) -> tuple[dict[str, Bound], ...]:
    """How far the members of an ensemble stray, after each step."""
    mine = [
        followed(training, noise=replace(noise, member=member))
        for member in range(comm.rank, MEMBERS, comm.size)
    ]
    ordered = chain.from_iterable(zip_longest(*comm.allgather(mine)))
    right = comm.bcast(followed(training) if not comm.rank else None)
    spreads = [{name: Spread(value) for name, value in step.items()} for step in right]
    for member in ordered:
        for of_step, values in zip(spreads, member or (), strict=False):
            for name, value in values.items():
                of_step[name].add(value)
    arithmetic = noise.arithmetic
    return tuple({name: s.bound(arithmetic) for name, s in step.items()} for step in spreads)
