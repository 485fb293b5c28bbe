"""The trainer: epochs over a sampler's batches, with events, evaluations and checkpoints.

    trainer = Trainer(session, dataset, ShuffleSampler(len(dataset.train), 64, seed=1))
    history = trainer.run(epochs=5)

A run that is interrupted and resumed from its checkpoint ends with the same bits as one that was
not: parameters, state and losses. A checkpoint is one NumPy archive: parameters, slots, and JSON
with the history and what the run was made of. Nothing is pickled. A run goes on only from a
checkpoint of its own kind: another optimizer, dataset or order of samples is refused with what
differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from d5test.case import Array
from d5test.files import parsed, replacing
from d5test.training.datasets import Dataset, Split
from d5test.training.history import History
from d5test.training.samplers import Indices, Sampler, batches
from d5test.training.session import Batch, BatchResult, Session, Snapshot

TOGETHER = 8
"""Batches that travel in one request: few enough for a progress bar to move."""
TESTED = 256
"""Samples of a batch when the network is tested."""
MEASURED = 16
"""Batches of the training split, of as many samples, at most, that tell what batch normalisation
is tested with. A last one with fewer is left out, if there are others."""

FORMAT = 1
BROKEN = (
    ValueError, LookupError, TypeError, AttributeError, BadZipFile, EOFError, SyntaxError,
    NotImplementedError, RuntimeError, RecursionError, MemoryError, OverflowError, TokenError,
    struct.error,
)  # fmt: skip
"""What zipfile, NumPy and a damaged head raise."""


class TrainingEvent(NamedTuple):
    """What happened: `run`, `epoch`, `step`, `tested`, `checkpoint` or `end`.

    value  of a `run` the epochs, of an `epoch` its steps, of a `step` the loss, of `tested` the
           accuracy
    """

    what: str
    epoch: int
    step: int
    value: float = float("nan")


Listener = Callable[[TrainingEvent], None]


QUOTED = 300
"""Characters at most of a library's error, which may quote the whole file."""


class ResumeFault(ValueError):
    """A run that cannot go on from this checkpoint as it began; the text says what differs."""


@dataclass(frozen=True)
class Checkpoint:
    """A run after `batch` batches of epoch `epoch`, of whose samples `right` were right.

    made_of  what the run was made of: optimizer, sampler, dataset, network, in words
    seen     for each epoch that has begun, the digest of the samples so far, in order
    """

    epoch: int
    batch: int
    right: int
    snapshot: Snapshot
    history: History
    made_of: Mapping[str, str]
    seen: tuple[str, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it; an interrupted write leaves the file of before."""
        arrays = {f"w/{name}": w for name, w in self.snapshot.parameters.items()}
        for name, kept in self.snapshot.slots.items():
            arrays |= {f"s/{name}/{i}": slot for i, slot in enumerate(kept)}
        head = {
            "format": FORMAT,
            "epoch": self.epoch,
            "batch": self.batch,
            "right": self.right,
            "t": self.snapshot.t,
            "slots": {name: len(kept) for name, kept in self.snapshot.slots.items()},
            "history": asdict(self.history),
            "made_of": dict(self.made_of),
            "seen": list(self.seen),
        }
        arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        with replacing(path) as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Read it. Raises `ResumeFault`."""
        try:
            arrays = _arrays(Path(path))
            return cls._of(parsed(arrays.pop("head").tobytes()), arrays)
        except OSError as error:
            raise ResumeFault(f"{path}: no checkpoint: {error.strerror or error}") from None
        except BROKEN as error:
            why = textwrap.shorten(str(error), QUOTED, placeholder=" ...") or type(error).__name__
            raise ResumeFault(f"{path}: no checkpoint: {why}") from None

    @classmethod
    def _of(cls, head: Any, arrays: Mapping[str, Array]) -> Checkpoint:
        """What `save` made these of; raises one of `BROKEN`."""
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']!r:.20}, this is {FORMAT}")
        counts = {name: head[name] for name in ("epoch", "batch", "right", "t")}
        counts |= {f"slots of {name}": count for name, count in head["slots"].items()}
        for name, count in counts.items():
            if type(count) is not int or count < 0:
                raise ValueError(f"{name} is {count!r:.20}, not a count")
        seen = tuple(map(str, head["seen"]))
        if len(seen) != head["epoch"] + (head["batch"] > 0):
            raise ValueError(f"{len(seen)} epochs were seen until epoch {head['epoch']}")
        slots = {
            str(name): tuple(arrays[f"s/{name}/{i}"] for i in range(count))
            for name, count in head["slots"].items()
        }
        return cls(
            epoch=head["epoch"],
            batch=head["batch"],
            right=head["right"],
            snapshot=Snapshot(
                head["t"], {n[2:]: w for n, w in arrays.items() if n.startswith("w/")}, slots
            ),
            history=_history(head["history"]),
            made_of={str(name): str(what) for name, what in head["made_of"].items()},
            seen=seen,
        )

    def require(self, made_of: Mapping[str, str], orders: Sequence[Sequence[Indices]]) -> None:
        """Raise `ResumeFault` unless a run made of this, in this order of samples, is this one.

        `orders` are the batches of each epoch that has begun.
        """
        for name, was in self.made_of.items():
            if made_of.get(name) != was:
                raise ResumeFault(f"{name}: the run began with {was}, not {made_of.get(name)}")
        for epoch, (was, order) in enumerate(zip(self.seen, orders, strict=True)):
            begun = order[: self.batch] if epoch == self.epoch else order
            if digest(begun) != was:
                raise ResumeFault(f"epoch {epoch} is shuffled differently than before")


def _arrays(path: Path) -> dict[str, Array]:
    """The arrays of a NumPy archive as `numpy.savez` writes it: no member is compressed."""
    arrays = {}
    with path.open("rb") as file, ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
            raise ValueError("it would unpack to more than the file")
        for member in archive.infolist():
            if member.compress_type != ZIP_STORED:
                raise ValueError(f"{member.filename!r:.40} is compressed")
            arrays[member.filename.removesuffix(".npy")] = _array(archive.read(member))
    return arrays


def _array(content: bytes) -> Array:
    """The array of an NPY file; as long as it says, so that nothing else is given memory."""
    file = BytesIO(content)
    version = npy.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"an array is of NPY's version {version}, not (1, 0)")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    if dtype.kind not in "biuf" or prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"an array of {dtype} {shape} is damaged")
    values = np.frombuffer(bytearray(content), dtype, offset=file.tell())
    return values.reshape(shape, order="F" if fortran else "C")


def _history(saved: Any) -> History:
    """What `asdict` made of one: numbers, and lists of them."""
    history = History(**saved)
    numbers = (
        *history.losses, *history.training_accuracy, *history.test_accuracy, *history.tested_at,
        *history.spent.values(), history.trained,
    )  # fmt: skip
    if not all(type(number) in (int, float) for number in numbers):
        raise ValueError("its history holds what is no number")
    return history


def digest(batches: Sequence[Indices]) -> str:
    """The SHA-256 of samples, in order and by batch."""
    sha = hashlib.sha256()
    for batch in batches:
        sha.update(f"{len(batch)}:".encode())
        sha.update(np.ascontiguousarray(batch, np.int64).tobytes())
    return sha.hexdigest()


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
            with self._spending("evaluation"):
                tested = accuracy(self.session, self.dataset)
            self.history.test_accuracy.append(tested)
            self.history.tested_at.append(self.history.elapsed)
            self._tell("tested", tested)
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
        checkpoint = Checkpoint.load(path)
        orders = [self.sampler.epoch(epoch) for epoch in range(len(checkpoint.seen))]
        checkpoint.require(self.made_of, orders)
        wanted = {name: w.shape for name, w in self.session.network.graph.parameters.items()}
        if {name: w.shape for name, w in checkpoint.snapshot.parameters.items()} != wanted:
            raise ResumeFault(f"{path}: its parameters are not those of the network")
        self._epoch, self._batch = checkpoint.epoch, checkpoint.batch
        self._right, self.history = checkpoint.right, checkpoint.history
        first = self.sampler.epoch(self._epoch)[0]
        self.session.restore(checkpoint.snapshot, like=self.dataset.train.batch(first))

    def _train_epoch(self) -> None:
        order = self.sampler.epoch(self._epoch)
        self._tell("epoch", len(order))
        while self._batch < len(order):
            due = TOGETHER if self.every is None else self.every - self._batch % self.every
            self._trained(order[self._batch : self._batch + min(TOGETHER, due)])
            if self.every is not None and self._batch % self.every == 0:
                self.save()
        self.history.training_accuracy.append(self._right / sum(map(len, order)))

    def _trained(self, order: Sequence[Indices]) -> list[BatchResult]:
        with self._spending("data"):
            minibatches = [self.dataset.train.batch(indices) for indices in order]
        start = time.perf_counter()
        passed = self.session.train(minibatches)
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

    def save(self) -> None:
        """Write the checkpoint, if there is a file for it."""
        if self.checkpoint is None:
            return
        with self._spending("checkpoint"):
            snapshot = self.session.snapshot()
            orders = [self.sampler.epoch(epoch) for epoch in range(self._epoch)]
            if self._batch:
                orders.append(self.sampler.epoch(self._epoch)[: self._batch])
            Checkpoint(
                self._epoch, self._batch, self._right, snapshot, self.history, self.made_of,
                tuple(map(digest, orders)),
            ).save(self.checkpoint)  # fmt: skip
        self._tell("checkpoint")

    def _tell(self, what: str, value: float = float("nan")) -> None:
        event = TrainingEvent(what, self._epoch, len(self.history.losses), value)
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


class ProgressBar(Progress):
    """A listener: the steps of each epoch, the loss, and the test accuracy so far.

    >>> with ProgressBar() as bar:
    ...     Trainer(session, dataset, sampler, listeners=[bar]).run(epochs=5)
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}  tested {task.fields[tested]:.2%}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self.add_task("", total=None, loss=float("nan"), tested=0.0)
        self._epochs = 0

    def __call__(self, event: TrainingEvent) -> None:
        """Move the bar."""
        if event.what == "run":
            self._epochs = int(event.value)
        elif event.what == "epoch":
            name = f"epoch {event.epoch + 1} of {self._epochs}"
            self.update(self._task, description=name, total=int(event.value), completed=0)
        elif event.what == "step":
            self.update(self._task, advance=1, loss=event.value)
        elif event.what == "tested":
            self.update(self._task, tested=event.value)
