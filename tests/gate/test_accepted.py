"""Slowdowns that are accepted: which, how far, how long."""

from datetime import date
from pathlib import Path

import pytest

from d5test.compare.comparison import Comparison
from d5test.compare.output import sentence
from d5test.gate import Gate
from d5test.gate.accepted import Unacceptable, accept, read, unused
from d5test.gate.outcome import outcome
from tests.gate.versions import World

ROW = """
[[accepted]]
benchmark = "b1"
metric = "time"
up_to = 0.30
reason = "the new kernel is deterministic"
owner = "kernels@example.org"
expires = 2031-03-31
"""
TODAY = date(2030, 1, 1)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A comparison in which b1 is a fifth slower."""
    gate = Gate(World(slower={"b1": 1.2}).open)
    subjects = World(slower={"b1": 1.2}).subjects(3)
    found = outcome(gate.measure(subjects), gate.decider.effect, tmp_path_factory.mktemp("runs"))
    assert found is not None
    assert found.comparison.verdict == "regressed"
    return found.comparison


def written(folder: Path, text: str) -> Path:
    path = folder / "accepted.toml"
    path.write_text(text)
    return path


def verdicts(slower: Comparison, path: Path, today: date = TODAY) -> list[str]:
    return [d.verdict for d in accept(slower.decisions, read(path), today)]


def test_a_row_accepts(slower: Comparison, tmp_path: Path) -> None:
    found = verdicts(slower, written(tmp_path, ROW))
    assert found.count("accepted") == 1
    assert "worse" not in found


@pytest.mark.parametrize(
    "text",
    [ROW.replace("0.30", "0.10"), ROW.replace('"b1"', '"b2"'), ROW.replace('"time"', '"right"')],
)
def test_no_more_than_it_says(slower: Comparison, tmp_path: Path, text: str) -> None:
    assert verdicts(slower, written(tmp_path, text)).count("worse") == 1


def test_what_has_expired_accepts_nothing_and_says_so(slower: Comparison, tmp_path: Path) -> None:
    rows = read(written(tmp_path, ROW))
    found = accept(slower.decisions, rows, date(2031, 4, 1))
    (worse,) = (d for d in found if d.verdict == "worse")
    assert "accepted until 2031-03-31, which is over (kernels@example.org)" in worse.reason


def test_it_is_told_with_its_reason(tmp_path: Path) -> None:
    world = World(slower={"b1": 1.2})
    gate, rows = Gate(world.open), read(written(tmp_path, ROW))
    found = outcome(gate.measure(world.subjects(3)), gate.decider.effect, tmp_path / "runs", rows)
    assert found is not None
    assert found.comparison.verdict == "passed"
    assert "1 worse and accepted" in sentence(found.comparison)


def test_rows_of_what_was_not_measured_are_told(tmp_path: Path) -> None:
    rows = read(written(tmp_path, ROW))
    assert unused(rows, ["suite.py::test_time[b1]"]) == []
    assert unused(rows, ["suite.py::test_time[b2]"]) == ["b1"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing = 1", "it is a list of rows"),
        ("[[accepted]]\n", "a row has the fields"),
        (ROW.replace("0.30", "30"), "0.08 is 8%"),
        (ROW.replace("0.30", '"30%"'), "not a number"),
        (ROW.replace("2031-03-31", '"later"'), "not a date"),
        (ROW.replace('"the new kernel is deterministic"', '" "'), "reason"),
        (ROW + "more = 1\n", "a row has the fields"),
        ("[[accepted", "is not TOML"),
        ("accepted = " + "9" * 5000, "is not TOML"),
        (ROW.replace("0.30", "9" * 4000), "0.08 is 8%"),
        (ROW.replace("0.30", "nan"), "up_to of 'b1' is nan; 0.08 is 8%"),
        (ROW.replace("0.30", "-inf"), "0.08 is 8%"),
        ("accepted = " + "[" * 100_000, "nested too deep"),
        ("accepted = [1]", "a row has the fields"),
        ("accepted = {x = 1}", "it is a list of rows"),
        ("\0", "is not TOML"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(Unacceptable, match=why) as error:
        read(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_what_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "accepted.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Unacceptable, match="is not TOML"):
        read(path)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unacceptable, match="No such file"):
        read(tmp_path / "none.toml")
