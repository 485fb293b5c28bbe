"""Files of images and labels: IDX (MNIST's format) and CIFAR-10's binary format.

Requirements: nothing is unpickled; a file that is not what it should be is one line that names it,
says what was found and what was expected. A file's SHA-256 is compared with the folder's
SHA256SUMS, if there is one, as `sha256sum` writes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from d5test.files import unzipped

Array = NDArray[Any]
SUMS = "SHA256SUMS"
IDX_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""NumPy's codes of the third byte of an IDX file's magic number."""
CIFAR_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
CIFAR_TEST = ("test_batch.bin",)
CIFAR_SHAPE = (3, 32, 32)
LARGEST = 1 << 28
"""Bytes that a gzipped file may unpack to: five times those of MNIST."""


class BadFile(ValueError):
    """A file that is missing or not what it should be."""


def read(path: str | Path) -> bytes:
    """The content of a file, whose checksum is right if there is one. Raises `BadFile`."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    wanted = checksums(path.parent).get(path.name)
    found = hashlib.sha256(content).hexdigest()
    if wanted is not None and found != wanted:
        raise BadFile(f"{path}: its SHA-256 is {found}, {SUMS} has {wanted}")
    return content


def checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of the files of a folder, by name, as its SHA256SUMS has them."""
    listed = folder / SUMS
    if not listed.is_file():
        return {}
    sums = {}
    for number, line in enumerate(_lines(listed), 1):
        digest, _, name = line.partition(" ")
        if len(digest) != 64 or not name.strip():
            raise BadFile(
                f"{listed}, line {number}: expected a SHA-256 and a name, got {line!r:.80}"
            )
        sums[name.strip().lstrip("*")] = digest.lower()
    return sums


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadFile(f"{path}: not UTF-8") from None


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
    begin = 4 + 4 * rank
    if len(content) < begin:
        raise BadFile(f"{path}: ends before the {rank} sides that it announces")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", rank, 4))
    want = begin + prod(shape) * dtype.itemsize  # Python's integers do not wrap
    if len(content) != want:
        raise BadFile(f"{path}: {shape} needs {want} bytes, there are {len(content)}")
    try:
        values = np.frombuffer(content, dtype, offset=begin).reshape(shape)
    except ValueError as error:  # more axes, or elements, than NumPy has
        raise BadFile(f"{path}: {rank} axes: {error}") from None
    return values.astype(dtype.newbyteorder("="), copy=False)


def cifar(folder: str | Path, names: Sequence[str]) -> tuple[Array, Array]:
    """Images (n, 3, 32, 32) in uint8 and labels (n,) in int64 of CIFAR-10's binary files.

    Rows of one byte for the label and 3072 for the image, red, green, blue. Raises `BadFile`.
    """
    rows = []
    width = 1 + int(np.prod(CIFAR_SHAPE))
    for name in names:
        content = read(Path(folder) / name)
        if not content or len(content) % width:
            raise BadFile(
                f"{Path(folder) / name}: {len(content)} bytes are no rows of {width}: "
                "not CIFAR-10's binary format"
            )
        rows.append(np.frombuffer(content, np.uint8).reshape(-1, width))
        if (most := int(rows[-1][:, 0].max())) > 9:
            raise BadFile(f"{Path(folder) / name}: label {most}, CIFAR-10 has 0 to 9")
    every = np.concatenate(rows)
    return every[:, 1:].reshape(-1, *CIFAR_SHAPE), every[:, 0].astype(np.int64)
