"""Some of the rounds, kept while a file is read: evenly spaced, in order, bounded."""

import json
from pathlib import Path

import numpy as np
import pytest

from d5test.compare.condensed import condensed, packed, rounds_of, thinned, unpacked
from d5test.compare.entry import Detail
from d5test.compare.reading import read
from tests.compare.files import ROUNDS, benchmark, write


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize(("count", "step"), [(0, 1), (1, 1), (50, 1), (51, 2), (101, 4), (333, 8)])
def test_every_kth_is_kept(count: int, step: int, block: int) -> None:
    given = np.random.default_rng(3).random(count) + 0.5
    text = json.dumps({"data": list(given), "cpu": [1.0] * count}, indent=4).encode()
    found = json.loads(condensed((text[k : k + block] for k in range(0, len(text), block)), 50))
    assert found["cpu"] == found["data"]["count"] == count
    assert np.array_equal(unpacked(found["data"]["some"]), given[::step].astype(np.float32))


def test_what_is_no_number_is_kept_as_it_is() -> None:
    text = json.dumps({"data": [1, 2, None], "nested": {"data": ["x"]}}).encode()
    assert json.loads(condensed([text], 50)) == json.loads(text)


def test_ill_formed_numbers_are_no_rounds() -> None:
    assert json.loads(condensed([b'{"data": [1-2, 3]}'], 50)) == {"data": {"count": 2, "some": ""}}


def test_what_is_no_time_is_left_out() -> None:
    found = rounds_of([1.0, 0.0, -1.0, float("inf"), 1e300, 2.0])
    assert list(found) == [1, 2]


@pytest.mark.parametrize(("most", "kept"), [(0, 0), (1, 1), (4, 4), (9, 9), (10, 10), (99, 10)])
def test_thinned(most: int, kept: int) -> None:
    rounds = rounds_of(np.arange(1, 11))
    found = thinned(rounds, most)
    assert len(found) <= most
    assert len(found) >= kept / 2
    assert list(found[:1]) == [1] * min(most, 1)


def test_packed_and_unpacked() -> None:
    rounds = rounds_of(np.random.default_rng(5).random(7) + 1)
    assert np.array_equal(unpacked(packed(rounds)), rounds)
    with pytest.raises(ValueError, match=r"base64|padding"):
        unpacked("no base64!")


def test_details_are_read_if_they_are_asked_for(tmp_path: Path) -> None:
    path = str(write(tmp_path / "run.json", [benchmark("one", 2e-3)]))
    (plain,), (run,) = read(path), read(path, rounds=4)
    assert plain.entries == run.entries
    assert plain.entries["one"].detail == Detail()
    assert not plain.entries["one"].detail.rounds.size
    detail = run.entries["one"].detail
    assert detail.count == ROUNDS
    assert detail.rounds.tolist() == pytest.approx([2e-3 * (1 + 0.1 * k) for k in (0, 2, 4, 6)])
    assert detail.about["d5test.dtype"] == "float32"
    assert detail.about["d5test.backend.name"] == "torch"
    assert detail.about["d5test.median"] == pytest.approx(2.6e-3)
