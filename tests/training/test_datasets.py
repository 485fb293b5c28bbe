"""Files are read as they are written down in their formats, and refused with one line."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from d5test.training.datasets import (
    LARGEST,
    SUMS,
    BadFile,
    cifar,
    cifar10,
    digits,
    idx,
    mnist,
    synthetic,
)


def written(path: Path, array: np.ndarray, code: int = 0x08) -> Path:
    """An IDX file, byte by byte."""
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(head + array.astype(array.dtype.newbyteorder(">")).tobytes())
    return path


@pytest.mark.parametrize(("code", "dtype"), [(0x08, "u1"), (0x0B, "i2"), (0x0D, "f4")])
def test_idx(tmp_path: Path, code: int, dtype: str) -> None:
    array = np.arange(30, dtype=dtype).reshape(2, 3, 5)
    read = idx(written(tmp_path / "a", array, code))
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)
    (tmp_path / "a.gz").write_bytes(gzip.compress((tmp_path / "a").read_bytes()))
    np.testing.assert_array_equal(idx(tmp_path / "a.gz"), array)


BROKEN = {
    "not IDX: it begins with 50 4b 03 04": b"PK\3\4 and so on",
    "ends before the 3 sides": b"\0\0\x08\x03\0\0\0\1",
    "needs 18 bytes, there are 14": b"\0\0\x08\x02\0\0\0\2\0\0\0\3ab",
    "not gzip": b"\x1f\x8bnonsense",
    "needs 18446744065119617037 bytes": b"\0\0\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff",
    "200 axes": b"\0\0\x08\xc8" + b"\0\0\0\1" * 200 + b"x",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_one_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(BROKEN[what])
    with pytest.raises(BadFile, match=what) as caught:
        idx(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_pack_that_swells_is_refused(tmp_path: Path) -> None:
    """300 kB that would be 300 MB."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(LARGEST + 1), 9))
    with pytest.raises(BadFile, match=f"larger than {LARGEST >> 20} MiB when unpacked"):
        idx(path)


def test_labels_are_digits_in_one_row(tmp_path: Path) -> None:
    images, labels = np.zeros((3, 5, 7), "u1"), np.array([0, 9, 10], "u1")
    for stem in ("train", "t10k"):
        written(tmp_path / f"{stem}-images-idx3-ubyte", images)
        written(tmp_path / f"{stem}-labels-idx1-ubyte", labels)
    with pytest.raises(BadFile, match="a train label is not a digit from 0 to 9"):
        mnist(str(tmp_path))
    written(tmp_path / "train-labels-idx1-ubyte", labels[:, None])
    with pytest.raises(BadFile, match=r"labels \(3, 1\), expected \(n, h, w\) and \(n,\)"):
        mnist(str(tmp_path))


def test_a_checksum_that_differs_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a", np.arange(6, dtype="u1"))
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / SUMS).write_text(f"{right}  a\n")
    assert len(idx(path)) == 6
    (tmp_path / SUMS).write_text(f"{'0' * 64}  a\n")
    with pytest.raises(BadFile, match=right):
        idx(path)


def test_mnist(tmp_path: Path) -> None:
    for name, n in (("train", 7), ("t10k", 5)):
        images = np.arange(n * 12, dtype="u1").reshape(n, 3, 4)
        written(tmp_path / f"{name}-images-idx3-ubyte", images)
        written(tmp_path / f"{name}-labels-idx1-ubyte", np.arange(n, dtype="u1"))
    made = mnist(str(tmp_path))
    assert (made.train.images.shape, made.test.images.shape) == ((7, 1, 3, 4), (5, 1, 3, 4))
    assert made.test.labels.tolist() == [0, 1, 2, 3, 4]
    written(tmp_path / "t10k-labels-idx1-ubyte", np.arange(4, dtype="u1"))
    with pytest.raises(BadFile, match="5 t10k images, 4 labels"):
        mnist(str(tmp_path))


def rows(count: int, seed: int) -> bytes:
    values = np.random.default_rng(seed).integers(0, 256, (count, 3073), dtype=np.uint8)
    values[:, 0] %= 10
    return values.tobytes()


def test_cifar(tmp_path: Path) -> None:
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}.bin").write_bytes(rows(3, i))
    with pytest.raises(BadFile, match=r"test_batch\.bin: No such file"):
        cifar10(str(tmp_path))
    (tmp_path / "test_batch.bin").write_bytes(rows(4, 9))
    made = cifar10(str(tmp_path))
    assert made.train.images.shape == (15, 3, 32, 32)
    assert len(made.test) == 4
    first = np.frombuffer(rows(3, 1), np.uint8)
    assert made.train.labels[0] == first[0]
    assert made.train.images[0, 1, 0, 5] == first[1 + 1024 + 5]
    (tmp_path / "test_batch.bin").write_bytes(rows(4, 9)[:-1])
    with pytest.raises(BadFile, match="12291 bytes are no rows of 3073"):
        cifar(tmp_path, ["test_batch.bin"])
    (tmp_path / "test_batch.bin").write_bytes(bytes([11]) * 3073)
    with pytest.raises(BadFile, match="label 11"):
        cifar(tmp_path, ["test_batch.bin"])


def test_digits_are_what_they_were() -> None:
    made = digits()
    assert (len(made.train), len(made.test), made.train.images.shape[1:]) == (1437, 360, (1, 8, 8))
    assert made.digest == digits().digest
    batch = made.train.batch(np.arange(1437))
    assert batch["x"].dtype == np.float32
    assert abs(float(batch["x"].mean(dtype=np.float64))) < np.finfo(np.float32).eps * 1437
    assert set(made.test.labels) == set(range(10))


def test_synthetic_data_is_its_seed() -> None:
    assert synthetic(seed=3).digest == synthetic(seed=3).digest != synthetic(seed=4).digest
