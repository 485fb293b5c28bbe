"""A training run on disk: everything that the rest of the run depends on, bit for bit.

One NumPy archive: parameters, slots, and JSON with the history and what the run was made of.
Nothing is pickled. A run goes on only from a checkpoint of its own kind: another optimizer,
dataset or order of samples is refused with what differs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from d5test.training.history import History
from d5test.training.samplers import Indices
from d5test.training.session import Snapshot

FORMAT = 1


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
        part = Path(f"{os.fspath(path)}.part")
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        part.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Read it. Raises `ResumeFault`."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = dict(archive)
            head = json.loads(arrays.pop("head").tobytes())
            if head["format"] != FORMAT:
                raise ResumeFault(f"{path}: format {head['format']}, this is {FORMAT}")
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise ResumeFault(f"{path}: no checkpoint: {error}") from None
        parameters = {name[2:]: w for name, w in arrays.items() if name.startswith("w/")}
        slots = {
            name: tuple(arrays[f"s/{name}/{i}"] for i in range(count))
            for name, count in head["slots"].items()
        }
        snapshot = Snapshot(head["t"], parameters, slots)
        history = History(**head["history"])
        return cls(
            epoch=head["epoch"],
            batch=head["batch"],
            right=head["right"],
            snapshot=snapshot,
            history=history,
            made_of=head["made_of"],
            seen=tuple(head["seen"]),
        )

    def require(self, made_of: Mapping[str, str], orders: Sequence[Sequence[Indices]]) -> None:
        """Raise `ResumeFault` unless a run made of this, in this order of samples, is this one.

        `orders` are the batches of each epoch that has begun.
        """
        for name, was in self.made_of.items():
            if made_of.get(name) != was:
                raise ResumeFault(f"{name}: the run began with {was}, not {made_of.get(name)}")
        for epoch, (was, batches) in enumerate(zip(self.seen, orders, strict=True)):
            begun = batches[: self.batch] if epoch == self.epoch else batches
            if digest(begun) != was:
                raise ResumeFault(f"epoch {epoch} is shuffled differently than before")


def digest(batches: Sequence[Indices]) -> str:
    """The SHA-256 of samples, in order and by batch."""
    sha = hashlib.sha256()
    for batch in batches:
        sha.update(f"{len(batch)}:".encode())
        sha.update(np.ascontiguousarray(batch, np.int64).tobytes())
    return sha.hexdigest()
