"""The trainer: epochs over a sampler's batches, with events, evaluations and checkpoints.

    trainer = Trainer(session, dataset, ShuffleSampler(len(dataset.train), 64, seed=1))
    history = trainer.run(epochs=5)

A run that is interrupted and resumed from its checkpoint ends with the same bits as one that was
not: parameters, state and losses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from d5test.training.checkpoint import Checkpoint, ResumeFault, digest
from d5test.training.datasets import Dataset, Split
from d5test.training.history import History
from d5test.training.samplers import Indices, Sampler, batches
from d5test.training.session import Batch, Passed, Session

TOGETHER = 8
"""Batches that travel in one request: few enough for a progress bar to move."""
TESTED = 256
"""Samples of a batch when the network is tested."""
MEASURED = 16
"""Batches of the training split, of as many samples, at most, that tell what batch normalisation
is tested with. A last one with fewer is left out, if there are others."""


class Event(NamedTuple):
    """What happened: `run`, `epoch`, `step`, `tested`, `checkpoint` or `end`.

    value  of a `run` the epochs, of an `epoch` its steps, of a `step` the loss, of `tested` the
           accuracy
    """

    what: str
    epoch: int
    step: int
    value: float = float("nan")


Listener = Callable[[Event], None]


class Trainer:
    """A session, a dataset, and the order in which its samples are met.

    checkpoint  the file that is written after each epoch, and after `every` steps if that is given
    """

    def __init__(
        self,
        session: Session,
        dataset: Dataset,
        sampler: Sampler,
        *,
        listeners: Sequence[Listener] = (),
        checkpoint: str | Path | None = None,
        every: int | None = None,
    ) -> None:
        self.session, self.dataset, self.sampler = session, dataset, sampler
        self.listeners = tuple(listeners)
        self.checkpoint, self.every = checkpoint, every
        self.history = History()
        self._epoch, self._batch = 0, 0
        self._right = 0

    @property
    def made_of(self) -> dict[str, str]:
        """What the run is made of, in words."""
        return {
            "optimizer": f"{self.session.optimizer!r}, {self.session.kind}",
            "sampler": repr(self.sampler),
            "dataset": f"{self.dataset.name} {self.dataset.digest}",
            "network": self.session.network.name,
        }

    def run(self, epochs: int) -> History:
        """Train until `epochs` epochs are over, tested after each."""
        self._tell("run", epochs)
        while self._epoch < epochs:
            self._train_epoch()
            self._test()
            self._epoch, self._batch, self._right = self._epoch + 1, 0, 0
            self.save()
        self._tell("end", self.history.final_accuracy)
        return self.history

    def train_steps(self, steps: int) -> list[float]:
        """The losses of the next steps, within the epoch that has begun."""
        order = self.sampler.epoch(self._epoch)
        return [p.loss for p in self._trained(order[self._batch : self._batch + steps])]

    def resume(self, path: str | Path) -> None:
        """Go on from a checkpoint. Raises `ResumeFault` if it is another run's."""
        found = Checkpoint.load(path)
        orders = [self.sampler.epoch(epoch) for epoch in range(len(found.seen))]
        found.require(self.made_of, orders)
        wanted = {name: w.shape for name, w in self.session.network.graph.parameters.items()}
        if {name: w.shape for name, w in found.snapshot.parameters.items()} != wanted:
            raise ResumeFault(f"{path}: its parameters are not those of the network")
        self.history, self._epoch, self._batch = found.history, found.epoch, found.batch
        self._right = found.right
        first = self.sampler.epoch(self._epoch)[0]
        self.session.restore(found.snapshot, like=self.dataset.train.batch(first))

    def _train_epoch(self) -> None:
        order = self.sampler.epoch(self._epoch)
        self._tell("epoch", len(order))
        while self._batch < len(order):
            due = TOGETHER if self.every is None else self.every - self._batch % self.every
            self._trained(order[self._batch : self._batch + min(TOGETHER, due)])
            if self.every is not None and self._batch % self.every == 0:
                self.save()
        samples = sum(map(len, order))
        self.history.training_accuracy.append(self._right / samples)

    def _trained(self, order: Sequence[Indices]) -> list[Passed]:
        with self._spending("data"):
            given = [self.dataset.train.batch(indices) for indices in order]
        start = time.perf_counter()
        passed = self.session.train(given)
        compute = sum(p.seconds for p in passed)
        self.history.spend("compute", compute)
        self.history.spend("transfer", time.perf_counter() - start - compute)
        for p in passed:
            self.history.losses.append(p.loss)
            self._batch += 1
            self._tell("step", p.loss)
        self._right += sum(p.right for p in passed)
        self.history.trained += sum(map(len, order))
        return passed

    def _test(self) -> None:
        with self._spending("evaluation"):
            found = accuracy(self.session, self.dataset)
        self.history.test_accuracy.append(found)
        self.history.tested_at.append(self.history.elapsed)
        self._tell("tested", found)

    def save(self) -> None:
        """Write the checkpoint, if there is a file for it."""
        if self.checkpoint is None:
            return
        with self._spending("checkpoint"):
            snapshot = self.session.snapshot()
            orders = [self.sampler.epoch(epoch) for epoch in range(self._epoch)]
            begun = self.sampler.epoch(self._epoch)[: self._batch] if self._batch else None
            seen = [*map(digest, orders), *([digest(begun)] if begun is not None else [])]
            Checkpoint(
                self._epoch, self._batch, self._right, snapshot, self.history, self.made_of,
                tuple(seen),
            ).save(self.checkpoint)  # fmt: skip
        self._tell("checkpoint")

    def _tell(self, what: str, value: float = float("nan")) -> None:
        event = Event(what, self._epoch, len(self.history.losses), value)
        for listener in self.listeners:
            listener(event)

    @contextmanager
    def _spending(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.history.spend(part, time.perf_counter() - start)


def accuracy(session: Session, dataset: Dataset) -> float:
    """The share of the test split that is classified right."""
    full = max(1, min(MEASURED, len(dataset.train) // TESTED))
    session.measure([batch for many in _batches(dataset.train, full) for batch in many])
    passed = [p for many in _batches(dataset.test) for p in session.evaluate(many)]
    return sum(p.right for p in passed) / len(dataset.test)


def _batches(split: Split, most: int | None = None) -> Iterator[list[Batch]]:
    """The split's first batches in order, some at a time."""
    order = batches(np.arange(len(split), dtype=np.int64), TESTED)[:most]
    for i in range(0, len(order), TOGETHER):
        yield [split.batch(indices) for indices in order[i : i + TOGETHER]]
