"""A step of an engine on the first few ranks, timed, and whether what was timed was right.

Requirements: on one rank it is the step of PyTorch alone, the base case of every engine of
PyTorch's. The model is large enough that a step computes for milliseconds. What was timed is
checked afterwards: parameters have moved, ranks agree on them, and each gave to collectives what
the engine's formula says. Whether they arrive where one process does is judged by `judging`.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from math import isfinite
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from d5test.case import dtype_of
from d5test.distributed.scaling import JOINED, OWN
from d5test.engines.cases import Case, Sizes
from d5test.engines.data_parallel import DataParallel
from d5test.engines.engine import Engine, World, gathered
from d5test.engines.training import Training
from d5test.engines.work import Meter, Work
from d5test.metric import median_interval

CASE = Case(
    "timed",
    "transformer",
    sizes=Sizes(width=96, hidden=384, words=512, length=32),
    options=(("lr", 2.0**-10),),  # hundreds of steps on a few minibatches do not diverge
)
"""What is trained: a quarter of a million parameters, 32 words a sample."""
ROUNDS = 15
"""Of a step and of its parts, in turns."""


def training_of(mode: str, ranks: int) -> Training:
    """Of a mode of scaling: as many samples of all ranks, or of each."""
    own = max(1, JOINED // ranks) if mode == "strong" else OWN
    return Training(replace(CASE, sizes=replace(CASE.sizes, own=own)), "float32", ranks)


class Alone(DataParallel):
    """PyTorch on one process, without an engine."""

    name = "torch"

    def start(self, world: World) -> None:
        """It takes its share, and tells nobody."""
        self.world = world

    def distributed(self, model: nn.Sequential) -> nn.Module:
        """As it is."""
        return model

    def summed(self, loss: torch.Tensor) -> float:
        """Its own part."""
        return float(loss)


@dataclass(frozen=True)
class Parts:
    """A step of data parallelism, and what it is made of: the slowest rank's seconds, in turns.

    step           of the engine
    compute        of each rank's share without an engine, on all ranks at the same time
    communication  of an allreduce of as many bytes as the engine gives
    """

    step: Sequence[float]
    compute: Sequence[float]
    communication: Sequence[float]

    def to_json(self) -> dict[str, Any]:
        """Medians, and how much of the shorter part is hidden behind the longer one.

        0 is nothing, 1 all of it; below 0 the engine costs more than both. With the interval of
        the rounds' median: of parts that are short beside the noise it says that nothing is known.
        """
        parts = {name: median(values) for name, values in vars(self).items()}
        shorter = min(parts["compute"], parts["communication"])
        rounds = zip(self.step, self.compute, self.communication, strict=True)
        hidden = [(computed + sent - step) / shorter for step, computed, sent in rounds]
        return {**parts, "hidden": median(hidden), "hidden_interval_95": median_interval(hidden)}


@dataclass(frozen=True)
class StepOfRank:
    """What a rank measured of itself.

    processor  seconds of its processor in a step: while it waits for others it sleeps
    moved      whether the parameters have, and are numbers
    """

    processor: float
    work: Work | None
    due: int | None
    replica: str
    moved: bool
    loss: float


class TimedEngine:
    """Call it: this rank takes a step, if it takes part.

    part  the communicator of the ranks that do, which have a process group; `None` at others
    """

    def __init__(
        self, part: Any, engine: Engine, training: Training, mesh: Mapping[str, int]
    ) -> None:
        self.part, self.engine, self.training = part, engine, training
        self._mesh, self._processor, self._steps = mesh, 0.0, 0

    def start(self) -> None:
        """Get the engine ready, on the ranks that take part."""
        if self.part is not None:
            self.engine.start(World(self.part.rank, self.part.size, self._mesh))
            model = self.training.model()
            self._meter = Meter(model)
            self.engine.wrap(model, self.training.rule, self.training.plan)
            self._batches = cycle(self.training.batches())

    def __call__(self) -> None:
        """On this rank, if it takes part."""
        if self.part is not None:
            begun = time.process_time()
            self.engine.step(next(self._batches))
            self._processor += time.process_time() - begun
            self._steps += 1

    def begin(self) -> None:
        """Forget the steps so far: they made the framework ready."""
        self._processor, self._steps = 0.0, 0

    def measured(self) -> StepOfRank | None:
        """Of this rank, if it took part. It takes one more step."""
        if self.part is None:
            return None
        processor, work = self._processor / max(self._steps, 1), list[Work]()
        world, batch = World(self.part.rank, self.part.size, self._mesh), next(self._batches)
        with self._meter.step(work, batch, world):
            loss = self.engine.step(batch)
        after = {name: p.detach().numpy() for name, p in self.engine.parameters().items()}
        before = {name: p.detach().numpy() for name, p in self.training.model().named_parameters()}
        return StepOfRank(
            processor,
            work[0] if self.engine.seen else None,
            self._due(),
            hashlib.sha256(b"".join(after[name].tobytes() for name in sorted(after))).hexdigest(),
            after.keys() == before.keys()
            and any(not np.array_equal(after[name], before[name]) for name in after)
            and all(np.isfinite(value).all() for value in after.values()),
            float(loss),
        )

    def _due(self) -> int | None:
        """Bytes that the engine gives in a step, by its formula."""
        return self.engine.gives(dtype_of(self.engine.rounding or "float32").itemsize)

    def parts(self) -> Parts | None:
        """Of data parallelism alone, where each rank has a core; all ranks ask at once."""
        if self.part is None or {*self._mesh} != {"dp"}:
            return None
        due, cores = self._due(), Cores.of_this_rank()
        if not due or not cores or not enough(gathered(cores, self.part.size)):
            return None
        alone = Alone()
        alone.start(World(self.part.rank, self.part.size, {}))
        alone.wrap(self.training.model(), self.training.rule, self.training.plan)
        batches, sent = cycle(self.training.batches()), torch.zeros(due // 4)
        return Parts(
            *_slowest(
                self.part.size,
                lambda: self.engine.step(next(self._batches)),
                lambda: alone.step(next(batches)),
                lambda: dist.all_reduce(sent),
            )
        )

    def close(self) -> None:
        """Give back what it has taken."""
        if self.part is not None:
            self.engine.close()


@dataclass(frozen=True)
class Cores:
    """Those that a rank may use on its host, and how many threads it has there."""

    host: str
    usable: frozenset[int]
    threads: int

    @classmethod
    def of_this_rank(cls) -> Cores | None:
        """`None` where the system does not say."""
        if not hasattr(os, "sched_getaffinity"):
            return None
        usable = frozenset(os.sched_getaffinity(0))
        return cls(socket.gethostname(), usable, torch.get_num_threads())


def enough(ranks: Sequence[Cores]) -> bool:
    """Whether each thread of these ranks can have a core, bound to some or not."""
    for host in {each.host for each in ranks}:
        there = [each for each in ranks if each.host == host]
        every = frozenset[int]().union(*(each.usable for each in there))
        if len(every) < sum(each.threads for each in there):
            return False
    return all(len(each.usable) >= each.threads for each in ranks)


def _slowest(ranks: int, *calls: Callable[[], object]) -> list[list[float]]:
    """The slowest rank's seconds of each call, after one that is not timed."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS + 1):
        for call, of_call in zip(calls, seconds, strict=True):
            dist.barrier()
            begun = time.perf_counter()
            call()
            of_call.append(max(gathered(time.perf_counter() - begun, ranks)))
    return [of_call[1:] for of_call in seconds]


def wrong(measured: Sequence[StepOfRank]) -> str:
    """Why the time of these steps means nothing; empty if they were right."""
    if not all(own.moved for own in measured):
        return "the parameters have not moved, or not to numbers"
    if not all(isfinite(own.loss) for own in measured):
        return "the loss is not a number"
    if len({own.replica for own in measured}) > 1:
        return "ranks differ after the timed steps"
    for rank, own in enumerate(measured):
        if own.work is not None and own.due is not None and own.work.sent != own.due:
            return f"rank {rank} gave {own.work.sent} bytes in a step, due {own.due}"
    return ""
