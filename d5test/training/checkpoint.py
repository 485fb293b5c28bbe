"""A training run on disk: everything that the rest of the run depends on, bit for bit.

One NumPy archive: parameters, slots, and JSON with the history and what the run was made of.
Nothing is pickled. A run goes on only from a checkpoint of its own kind: another optimizer,
dataset or order of samples is refused with what differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy

from d5test.case import Array
from d5test.files import parsed, replacing
from d5test.training.history import History
from d5test.training.samplers import Indices
from d5test.training.session import Snapshot

FORMAT = 1
BROKEN = (
    ValueError, LookupError, TypeError, AttributeError, BadZipFile, EOFError, SyntaxError,
    NotImplementedError, RuntimeError, RecursionError, MemoryError, OverflowError, TokenError,
    struct.error,
)  # fmt: skip
"""What zipfile, NumPy and a damaged head raise."""


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
            why = " ".join(str(error).split()) or type(error).__name__
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
        for epoch, (was, batches) in enumerate(zip(self.seen, orders, strict=True)):
            begun = batches[: self.batch] if epoch == self.epoch else batches
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


def _history(found: Any) -> History:
    """What `asdict` made of one: numbers, and lists of them."""
    history = History(**found)
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
