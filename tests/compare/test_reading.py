"""Large files, read in processes of their own: the same runs, and the same complaints."""

import gc
from itertools import chain
from pathlib import Path

import pytest

from d5test.compare import Run, Unreadable, read_sides, reading
from d5test.compare.entry import Detail
from tests.compare.files import sides


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is large, and two cores are there."""
    monkeypatch.setattr(reading, "LARGE", 1)
    monkeypatch.setattr(reading, "usable_cores", lambda: 2)


def details(run: Run) -> list[tuple[Detail, list[float]]]:
    return [(entry.detail, entry.detail.rounds.tolist()) for entry in run.entries.values()]


@pytest.mark.parametrize("rounds", [0, 4])
def test_the_same_runs(rounds: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    given = sides(tmp_path)
    alone = read_sides(given, rounds)
    request.getfixturevalue("large")
    together = read_sides(given, rounds)
    assert together == alone
    assert [[run.path for run in side] for side in together] == [
        [str(tmp_path / f"{side}{k}.json") for k in range(3)] for side in ("old", "new")
    ]
    for one, other in zip(chain(*together), chain(*alone), strict=True):
        assert details(one) == details(other)


@pytest.mark.usefixtures("large")
def test_the_same_complaint(tmp_path: Path) -> None:
    given = sides(tmp_path)
    (tmp_path / "new1.json").write_text("[]")
    with pytest.raises(Unreadable, match=r"new1\.json: is not a benchmark file"):
        read_sides(given)
    assert gc.isenabled()
