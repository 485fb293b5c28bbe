"""Datasets: images and labels for training and for testing, by name.

A dataset is the same on every machine: a split that is not given by its files is drawn from raw
Philox words. Its `digest` stands in the record of every run.

Requirements of files, in IDX (MNIST's format) and CIFAR-10's binary format: nothing is unpickled;
a file that is not what it should be is one line that names it, says what was found and what was
expected. A file's SHA-256 is compared with the folder's SHA256SUMS, if there is one, as
`sha256sum` writes it.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.files import unzipped
from d5test.training.samplers import Indices, shuffled
from d5test.values import below, normal

Array = NDArray[Any]
SUMS = "SHA256SUMS"
IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""NumPy's codes of the third byte of an IDX file's magic number."""
CIFAR_SHAPE = (3, 32, 32)
LARGEST = 1 << 28
"""Bytes that a gzipped file may unpack to: five times those of MNIST."""


class BadFile(ValueError):
    """A file that is missing or not what it should be."""


class NoPackage(ImportError):
    """A dataset that comes with a package which is not installed; the text says what to do."""


@dataclass(frozen=True)
class Split:
    """Images (n, c, h, w) as they are stored, labels (n,); what a network sees is standardised.

    shift, scale   (c, 1, 1): an image x goes in as (x - shift) / scale, in float32
    """

    images: Array
    labels: Array
    shift: Array
    scale: Array

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> dict[str, Array]:
        """`x` (n, c, h, w) in float32 and `labels` (n,) in int64."""
        x = (self.images[indices].astype(np.float32) - self.shift) / self.scale
        return {"x": x, "labels": self.labels[indices]}


@dataclass(frozen=True)
class Dataset:
    """A training and a test split."""

    name: str
    train: Split
    test: Split
    classes: int

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all images and labels."""
        sha = hashlib.sha256()
        for split in (self.train, self.test):
            for array in (split.images, split.labels):
                sha.update(f"{array.dtype.str}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()


def dataset(
    name: str, train: tuple[Array, Array], test: tuple[Array, Array], classes: int
) -> Dataset:
    """Images standardised by each channel's mean and deviation over the training images."""
    images = train[0].astype(np.float64)
    axes = (0, 2, 3)
    shift = images.mean(axes, keepdims=True)[0].astype(np.float32)
    scale = images.std(axes, keepdims=True)[0].astype(np.float32)
    scale[scale == 0] = 1  # a channel that is the same everywhere
    return Dataset(name, Split(*train, shift, scale), Split(*test, shift, scale), classes)


def digits() -> Dataset:
    """The handwritten digits of scikit-learn: 1437 for training, 360 for testing, (1, 8, 8).

    Alpaydin and Kaynak, UCI Machine Learning Repository (1998), its test part. Raises `NoPackage`.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise NoPackage(
            f"the digits come with scikit-learn: pip install 'd5test[training]' ({error})"
        ) from None

    bunch = load_digits()
    images, labels = bunch.images[:, None].astype(np.uint8), bunch.target.astype(np.int64)
    order = shuffled(len(labels), seed=500, epoch=0)
    test, train = order[:360], order[360:]
    return dataset("digits", (images[train], labels[train]), (images[test], labels[test]), 10)


def cifar10(folder: str = "cifar-10-batches-bin") -> Dataset:
    """CIFAR-10 from the files of its binary version: 50,000 and 10,000 images, (3, 32, 32).

    Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009). Raises
    `BadFile`.
    """
    train = cifar(folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
    return dataset("cifar10", train, cifar(folder, ["test_batch.bin"]), 10)


def mnist(folder: str = "mnist") -> Dataset:
    """MNIST from its four IDX files, gzipped or not: 60,000 and 10,000 images, (1, 28, 28)."""

    def half(name: str) -> tuple[Array, Array]:
        arrays = []
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
            plain = Path(folder) / f"{name}-{kind}"
            packed = plain.with_name(f"{plain.name}.gz")
            arrays.append(idx(packed if packed.is_file() else plain))
        images, labels = arrays
        if images.ndim != 3 or labels.ndim != 1 or not len(labels):
            raise BadFile(
                f"{folder}: {name} images {images.shape} and labels {labels.shape}, expected "
                "(n, h, w) and (n,)"
            )
        if labels.min() < 0 or labels.max() > 9:
            raise BadFile(f"{folder}: a {name} label is not a digit from 0 to 9")
        if len(images) != len(labels):
            raise BadFile(f"{folder}: {len(images)} {name} images, {len(labels)} labels")
        return images[:, None], labels.astype(np.int64)

    return dataset("mnist", half("train"), half("t10k"), 10)


def synthetic(
    train: int = 512,
    test: int = 128,
    classes: int = 4,
    shape: tuple[int, int, int] = (1, 8, 8),
    noise: float = 1.0,
    seed: int = 0,
) -> Dataset:
    """Images of a class are its own random image and normal noise: all that is needed to learn."""
    words, count = np.random.Philox(key=[seed, 0]), train + test
    f = np.dtype(np.float32)
    labels = below(words, (count,), f, classes)
    images = normal(words, (classes, *shape), f)[labels]
    images = (images + noise * normal(words, (count, *shape), f)).astype(f)
    return dataset(
        "synthetic", (images[:train], labels[:train]), (images[train:], labels[train:]), classes
    )


def read(path: str | Path) -> bytes:
    """The content of a file, whose checksum is right if there is one. Raises `BadFile`."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    listed = checksums(path.parent).get(path.name)
    digest = hashlib.sha256(content).hexdigest()
    if listed is not None and digest != listed:
        raise BadFile(f"{path}: its SHA-256 is {digest}, {SUMS} has {listed}")
    return content


def checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of the files of a folder, by name, as its SHA256SUMS has them."""
    listed = folder / SUMS
    if not listed.is_file():
        return {}
    try:
        lines = listed.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadFile(f"{listed}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadFile(f"{listed}: not UTF-8") from None
    sums = {}
    for number, line in enumerate(lines, 1):
        digest, _, name = line.partition(" ")
        if len(digest) != 64 or not name.strip():
            raise BadFile(
                f"{listed}, line {number}: expected a SHA-256 and a name, got {line!r:.80}"
            )
        sums[name.strip().lstrip("*")] = digest.lower()
    return sums


AXES = 64
"""The most that an array of NumPy may have."""


def idx(path: str | Path) -> Array:
    """The array of an IDX file, also a gzipped one. Raises `BadFile`.

    Two zero bytes, the code of the dtype, the number of axes; the sides as 32-bit integers; the
    values in row-major order; all with the highest byte first.
    """
    content = read(path)
    if content[:2] == b"\x1f\x8b":
        try:
            content = unzipped(content, LARGEST)
        except ValueError as error:
            raise BadFile(f"{path}: {error}") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_DTYPES:
        raise BadFile(f"{path}: not IDX: it begins with {content[:4].hex(' ')}")
    dtype, rank = np.dtype(IDX_DTYPES[content[2]]), content[3]
    if rank > AXES:
        raise BadFile(f"{path}: {rank} axes, NumPy has {AXES} at most")
    begin = 4 + 4 * rank
    if len(content) < begin:
        raise BadFile(f"{path}: ends before the {rank} sides that it announces")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", rank, 4))
    want = begin + prod(shape) * dtype.itemsize  # Python's integers do not wrap
    if len(content) != want:
        raise BadFile(f"{path}: {shape} needs {want} bytes, there are {len(content)}")
    try:
        values = np.frombuffer(content, dtype, offset=begin).reshape(shape)
    except ValueError as error:  # more elements than NumPy has
        raise BadFile(f"{path}: {shape}: {error}") from None
    return values.astype(dtype.newbyteorder("="), copy=False)


def cifar(folder: str | Path, names: Sequence[str]) -> tuple[Array, Array]:
    """Images (n, 3, 32, 32) in uint8 and labels (n,) in int64 of CIFAR-10's binary files.

    Rows of one byte for the label and 3072 for the image, red, green, blue. Raises `BadFile`.
    """
    parts = []
    width = 1 + prod(CIFAR_SHAPE)
    for path in (Path(folder) / name for name in names):
        content = read(path)
        if not content or len(content) % width:
            reason = f"{len(content)} bytes are no rows of {width}: not CIFAR-10's binary format"
            raise BadFile(f"{path}: {reason}")
        parts.append(np.frombuffer(content, np.uint8).reshape(-1, width))
        if (most := int(parts[-1][:, 0].max())) > 9:
            raise BadFile(f"{path}: label {most}, CIFAR-10 has 0 to 9")
    rows = np.concatenate(parts)
    return rows[:, 1:].reshape(-1, *CIFAR_SHAPE), rows[:, 0].astype(np.int64)


DATASETS: Mapping[str, Callable[..., Dataset]] = {
    make.__name__: make for make in (digits, cifar10, mnist, synthetic)
}
"""What makes each dataset, by name."""
