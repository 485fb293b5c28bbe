"""What a rank's engine has after each step, and what it did; from a checkpoint on, a fresh one's.

Requirements: the default process group of `torch.distributed` is there. The engine that goes on
knows nothing of the first one but the files that it has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import SupportsFloat

import numpy as np
import torch
import torch.distributed as dist

from d5test.backends.base import Unsupported
from d5test.case import Array, dtype_of
from d5test.engines.cases import HALF, STEPS
from d5test.engines.engine import Engine, Held, Side, World
from d5test.engines.sequential import LOSS, NORM, Trajectory
from d5test.engines.training import Training
from d5test.engines.work import Meter, Work


@dataclass(frozen=True)
class Phase:
    """Steps of a rank on one mesh, what it holds after them, and what it did.

    steps   their numbers, from 0 on
    work    in each step; nothing where it cannot be seen
    due     bytes that it should give in each, by its formula; `None` if there is none
    dtypes  of the parameters and buffers, by name, as they came
    split   linear modules that are split along `tp`, and by what
    """

    mesh: Mapping[str, int]
    steps: range
    trajectory: Trajectory
    held: Held
    work: Sequence[Work]
    due: Sequence[int | None]
    dtypes: Mapping[str, str]
    split: Mapping[str, Side]


@dataclass(frozen=True)
class Trained:
    """One phase, or one before a checkpoint and one after it."""

    phases: Sequence[Phase]

    @property
    def trajectory(self) -> Trajectory:
        """Of all steps."""
        return tuple(step for phase in self.phases for step in phase.trajectory)


class Owed(Exception):
    """A method of an engine has returned something else than it owes, as the text says."""


class TooLate(Exception):
    """An engine has said that it cannot do it, when ranks had made a step."""

    def __init__(self, why: Unsupported) -> None:
        super().__init__(str(why))
        self.why = why


def trained(
    engine: Engine, training: Training, world: World, resumed: Mapping[str, int] | None = None
) -> Trained:
    """Have this rank's engine train. Raises whatever it raises.

    resumed  the mesh on which a checkpoint is read; that of the world if there is none
    """
    if not training.case.resumed:
        return Trained((_phase(engine, training, world, range(STEPS)),))
    with _shared_folder() as folder:
        begun = _phase(engine, training, world, range(HALF), to=folder)
        dist.barrier()  # all have written
        other = replace(world, mesh=resumed or world.mesh)
        ended = _phase(type(engine)(), training, other, range(HALF, STEPS), since=folder)
    return Trained((begun, ended))


@contextmanager
def _shared_folder() -> Iterator[Path]:
    """Rank 0's, for all ranks, as long as it is needed."""
    with TemporaryDirectory(prefix="d5test-", ignore_cleanup_errors=True) as own:
        agreed = [own]
        dist.broadcast_object_list(agreed, src=0)
        yield Path(agreed[0])


def _phase(
    engine: Engine, training: Training, world: World, steps: range, *,
    since: Path | None = None, to: Path | None = None,
) -> Phase:  # fmt: skip
    """Train for some steps: since a checkpoint, and up to one."""
    try:
        if training.case.model == "dropout":  # before the engine, which may have seeds of its own
            torch.manual_seed(training.case.seed * training.ranks + world.rank)
        engine.start(world)
        model = training.model()
        meter, work = Meter(model), list[Work]()
        engine.wrap(model, training.rule, training.plan)
        engine.require_declarations()
        if since is not None:
            engine.load(since)
        itemsize = dtype_of(engine.rounding or training.dtype).itemsize
        made: list[dict[str, Array]] = []
        due, dtypes = [], {}
        for batch in training.batches()[steps.start : steps.stop]:
            with meter.step(work, batch, world):
                try:
                    loss = engine.step(batch)
                except Unsupported as why:
                    if not made:
                        raise
                    raise TooLate(why) from None
            if not isinstance(loss, SupportsFloat):
                owed = "and owes the mean loss of the joined minibatch, a float"
                raise Owed(f"{type(engine).__name__}.step returned {loss!r}, {owed}")
            due.append(engine.gives(itemsize))
            after: dict[str, Array] = {LOSS: np.asarray(float(loss))}
            if training.clip < inf:
                after[NORM] = np.asarray(float(engine.norm))
            for name, value in engine.parameters().items():
                dtypes[name] = str(value.dtype).removeprefix("torch.")
                after[name] = value.detach().double().numpy().copy()
            for name, value in engine.buffers().items() if training.buffers else ():
                dtypes[name] = str(value.dtype).removeprefix("torch.")
                after[training.buffer(name, world.rank)] = value.detach().double().numpy().copy()
            made.append(after)
        if to is not None:
            engine.save(to)
        counted = work if engine.seen else []
        held = engine.placements()
        split = {**training.plan.split, **engine.split}
        return Phase(world.mesh, steps, tuple(made), held, counted, due, dtypes, split)
    finally:
        engine.close()
