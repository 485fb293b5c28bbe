"""A backend of one's own in two files is one backend; where there is a choice, none is made."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from d5test.cli import main
from tests.compare.files import BACKEND, benchmark, write

Compared = Callable[..., Any]
OLD, NEW, OTHER = "./old.py:Mine", "./new.py:Mine", "./other.py:Mine"


def timed(backend: str, problem: str = "gemm", **changed: Any) -> dict[str, Any]:
    said = {**BACKEND, "name": backend}
    return benchmark(name_of(backend, problem), 1e-3, backend=said, **changed)


def name_of(backend: str, problem: str = "gemm") -> str:
    return f"operators/test_time.py::test_time[{problem}-forward-{backend}]"


def file(folder: Path, side: str, backends: Sequence[str], **untimed: str) -> Path:
    every = [timed(backend) for backend in backends]
    return write(folder / f"{side}.json", every, untimed=untimed)


def test_a_backend_in_another_file(tmp_path: Path, compared: Compared) -> None:
    before = [timed("torch"), timed(OLD), timed(OLD, "relu", operator="Relu")]
    old = write(tmp_path / "old.json", before)
    why = {name_of(NEW, "relu"): "skipped: it has no row for Relu"}
    new = write(tmp_path / "new.json", [timed("torch"), timed(NEW)], untimed=why)
    found = compared(old, new).found
    decided = {d["benchmark"] for d in found["decisions"]}
    assert decided == {name_of("torch"), name_of(NEW)}
    assert (found["new"], found["renamed"], found["changed"]) == ([], [], [])
    (gone,) = found["vanished"]
    assert (gone["name"], gone["reason"]) == next(iter(why.items()))
    assert found["environment"] == {"backend": [OLD, NEW]}


def test_another_problem_is_changed(tmp_path: Path, compared: Compared) -> None:
    old = write(tmp_path / "old.json", [timed(OLD)])
    new = write(tmp_path / "new.json", [timed(NEW, shapes=[[3, 5], [5, 11]])])
    assert compared(old, new).found["changed"] == [name_of(NEW)]


@pytest.mark.parametrize(
    ("before", "after"),
    [([OLD], [NEW, OTHER]), ([OLD, OTHER], [NEW]), ([OLD], ["torch"]), (["torch"], [NEW])],
)
def test_where_there_is_a_choice_none_is_made(
    before: Sequence[str], after: Sequence[str], tmp_path: Path, compared: Compared
) -> None:
    found = compared(file(tmp_path, "a", before), file(tmp_path, "b", after)).found
    assert found["decisions"] == []
    assert len(found["vanished"]) == len(before)
    assert found["new"] == [name_of(backend) for backend in after]


def test_one_that_both_have_is_no_choice(tmp_path: Path, compared: Compared) -> None:
    sides = file(tmp_path, "a", [OTHER, OLD]), file(tmp_path, "b", [OTHER, NEW])
    found = compared(*sides).found
    assert {d["benchmark"] for d in found["decisions"]} == {name_of(OTHER), name_of(NEW)}
    assert found["vanished"] == []


def test_the_page_calls_nothing_lost_and_can_be_verified(tmp_path: Path) -> None:
    sides = file(tmp_path, "a", ["torch", OLD]), file(tmp_path, "b", ["torch", NEW])
    page = tmp_path / "report.html"
    assert main(["report", *map(str, sides), "-o", str(page)]) == 0
    text = page.read_text()
    assert 'class="shade-lost">' not in text.replace(' class="shade-lost key"', "")
    assert text.count(OLD) == 1  # the environment says what was compared with what
    assert main(["verify", str(page)]) == 0
