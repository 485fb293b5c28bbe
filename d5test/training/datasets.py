"""Datasets: images and labels for training and for testing, by name.

A dataset is the same on every machine: a split that is not given by its files is drawn from raw
Philox words. Its `digest` stands in the record of every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.training import files
from d5test.training.samplers import Indices, shuffled
from d5test.values import below, normal

Array = NDArray[Any]


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

    found = load_digits()
    images, labels = found.images[:, None].astype(np.uint8), found.target.astype(np.int64)
    order = shuffled(len(labels), seed=500, epoch=0)
    test, train = order[:360], order[360:]
    return dataset("digits", (images[train], labels[train]), (images[test], labels[test]), 10)


def cifar10(folder: str = "cifar-10-batches-bin") -> Dataset:
    """CIFAR-10 from the files of its binary version: 50,000 and 10,000 images, (3, 32, 32).

    Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009). Raises
    `d5test.training.files.BadFile`.
    """
    train, test = files.cifar(folder, files.CIFAR_TRAIN), files.cifar(folder, files.CIFAR_TEST)
    return dataset("cifar10", train, test, 10)


def mnist(folder: str = "mnist") -> Dataset:
    """MNIST from its four IDX files, gzipped or not: 60,000 and 10,000 images, (1, 28, 28)."""

    def half(name: str) -> tuple[Array, Array]:
        found = []
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
            plain = Path(folder) / f"{name}-{kind}"
            packed = plain.with_name(f"{plain.name}.gz")
            found.append(files.idx(packed if packed.is_file() else plain))
        images, labels = found
        if images.ndim != 3 or labels.ndim != 1 or not len(labels):
            raise files.BadFile(
                f"{folder}: {name} images {images.shape} and labels {labels.shape}, expected "
                "(n, h, w) and (n,)"
            )
        if labels.min() < 0 or labels.max() > 9:
            raise files.BadFile(f"{folder}: a {name} label is no digit from 0 to 9")
        if len(images) != len(labels):
            raise files.BadFile(f"{folder}: {len(images)} {name} images, {len(labels)} labels")
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


DATASETS: Mapping[str, Callable[..., Dataset]] = MappingProxyType(
    {made.__name__: made for made in (digits, cifar10, mnist, synthetic)}
)
"""What makes each dataset, by name."""
